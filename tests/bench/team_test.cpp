// Teams of threads and of processes: everybody runs, prepared, as often as asked; faults come out of round().
#include "bench/team.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <new>
#include <stdexcept>

#include "bench/harness.h"
#include "sumpter/error.h"

namespace sumpter::bench {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr int kMembers = 3;
enum Job { kCount = 1, kThrow = 2, kDie = 3 };

// Shared with forked members.
struct Counts {
  std::atomic<int> prepared{0};
  std::atomic<int> running{0};  // left by runs that were the first, and by those that were not yet prepared
  std::atomic<int> unprepared{0};
  std::atomic<int> ran[kMembers]{};
};

class CountingMember : public TeamMember {
 public:
  CountingMember(Counts& counts, int rank) : counts_(counts), rank_(rank) {}
  void prepare(int) override { counts_.prepared.fetch_add(1); }
  void run(int job) override {
    if (job == kThrow && rank_ == 1) throw std::runtime_error("no more of this");
    if (job == kDie && rank_ == 2) kill(getpid(), SIGKILL);
    // Between the two lines nobody prepares: all have for this run, and none has for the next.
    if (counts_.prepared.load() % kMembers != 0) counts_.unprepared.fetch_add(1);
    counts_.ran[rank_].fetch_add(1);
  }

 private:
  Counts& counts_;
  int rank_;
};

class TeamTest : public testing::TestWithParam<Team::Kind> {
 protected:
  void SetUp() override {
    void* memory = mmap(nullptr, sizeof(Counts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    counts_ = new (memory) Counts;
  }
  void TearDown() override { munmap(counts_, sizeof(Counts)); }

  Team::MakeMember counting() {
    return [this](int rank) { return std::make_unique<CountingMember>(*counts_, rank); };
  }
  Counts* counts_ = nullptr;
};

TEST_P(TeamTest, EverybodyPreparesAndRunsAsOftenAsAsked) {
  {
    Team team(GetParam(), kMembers, counting());
    EXPECT_GE(team.round(kCount, 5), 0);
    EXPECT_GE(team.job(kCount)(2), 0);
  }
  for (const auto& ran : counts_->ran) EXPECT_EQ(ran.load(), 7);
  EXPECT_EQ(counts_->prepared.load(), 7 * kMembers);
  EXPECT_EQ(counts_->unprepared.load(), 0);
}

TEST_P(TeamTest, AMemberThatThrowsEndsTheRound) {
  Team team(GetParam(), kMembers, counting());
  const auto names_it = ThrowsMessage<Error>(HasSubstr("member 1: no more of this"));
  EXPECT_THAT([&] { team.round(kThrow, 3); }, names_it);
  EXPECT_THAT([&] { team.round(kCount, 1); }, names_it);
  EXPECT_EQ(counts_->ran[1].load(), 0);
}

TEST_P(TeamTest, AMemberThatCannotBeMadeIsNamed) {
  const auto make = [&] {
    Team team(GetParam(), kMembers, [](int rank) -> std::unique_ptr<TeamMember> {
      throw std::runtime_error("no room for " + std::to_string(rank));
    });
  };
  EXPECT_THAT(make, ThrowsMessage<Error>(HasSubstr("no room for ")));
}

TEST_P(TeamTest, RefusesNumbersOutOfRange) {
  EXPECT_THROW(Team(GetParam(), 0, counting()), RequestError);
  EXPECT_THROW(Team(GetParam(), 65, counting()), RequestError);
  Team team(GetParam(), 1, counting());
  EXPECT_THROW(team.round(kCount, 0), RequestError);
  EXPECT_THROW(team.round(kCount, kMaximumRepeats + 1), RequestError);
  EXPECT_EQ(counts_->prepared.load(), 0);
}

INSTANTIATE_TEST_SUITE_P(Kinds, TeamTest, testing::Values(Team::Kind::threads, Team::Kind::processes),
                         [](const auto& kind) { return kind.param == Team::Kind::threads ? "threads" : "processes"; });

using TeamOfProcesses = TeamTest;
TEST_P(TeamOfProcesses, AMemberThatIsKilledIsNamed) {
  Team team(GetParam(), kMembers, counting());
  EXPECT_THAT([&] { team.round(kDie, 1); }, ThrowsMessage<Error>(HasSubstr("member 2: was killed by signal 9")));
}
INSTANTIATE_TEST_SUITE_P(Kinds, TeamOfProcesses, testing::Values(Team::Kind::processes));

}  // namespace
}  // namespace sumpter::bench
