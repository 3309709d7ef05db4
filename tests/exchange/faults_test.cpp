// Members that are killed, stopped, throw, leave or abort, at moments that no code chose and at chosen ones: what every
// other member must be told, how soon, and what its memory holds afterwards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "sumpter/exchange.h"
#include "tests/exchange/buffers.h"
#include "tests/support/members.h"
#include "tests/support/prove.h"

namespace sumpter {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using tests::As;
using tests::Buffer;
using tests::Member;
using tests::Members;
using tests::Outcome;
using tests::require;
using tests::Way;

constexpr int kMembers = 3;

std::size_t count_for(Way way) { return way == Way::small ? 1'000 : 400'003; }

std::vector<Buffer> make_buffers(Exchange& exchange, Way way, int in_flight) {
  std::vector<Buffer> buffers;
  for (int i = 0; i < in_flight; ++i) {
    buffers.emplace_back(exchange, way, count_for(way));
  }
  return buffers;
}

// All-reduces of all the buffers, all in flight together, again and again until one raises. Whatever is waited for is
// either the whole sum, or raises and leaves nothing but NaN.
[[noreturn]] void reduce_until_raised(Exchange& exchange, std::vector<Buffer>& buffers) {
  const int n = exchange.members();
  for (int round = 0;; ++round) {
    const auto value = static_cast<float>(exchange.rank() + 1 + round % 5);
    const auto sum = static_cast<float>(n * (n + 1) / 2 + n * (round % 5));
    for (Buffer& buffer : buffers) {
      buffer.fill(value);
    }
    std::exception_ptr error;
    std::vector<Work> works;
    try {
      for (Buffer& buffer : buffers) {
        const Part part = buffer.part();
        works.push_back(exchange.begin_all_reduce({&part, 1}, {}));
      }
    } catch (const ExchangeError&) {
      error = std::current_exception();
    }
    for (std::size_t i = 0; i < works.size(); ++i) {
      try {
        works[i].wait();
        require(buffers[i].all(sum), "a finished all-reduce that is not the sum");
      } catch (const ExchangeError&) {
        error = std::current_exception();
        require(buffers[i].all_nan(), "an unfinished all-reduce that left numbers behind");
      }
    }
    if (error) {
      std::rethrow_exception(error);
    }
  }
}

void expect_blamed(const Outcome& outcome, const std::string& kind, int culprit, pid_t pid) {
  SCOPED_TRACE(describe(outcome));
  EXPECT_EQ(outcome.kind, kind);
  EXPECT_EQ(outcome.culprit, culprit);
  EXPECT_THAT(outcome.message, AllOf(HasSubstr("rank " + std::to_string(culprit)), HasSubstr(std::to_string(pid))));
}

// The others' ends after one process was killed: named by all, within five seconds.
void expect_all_raise_for_killed(Members& members, int victim) {
  ASSERT_EQ(members.wait(victim).signal, SIGKILL) << describe(members.wait(victim));
  const auto killed = Clock::now();
  for (int rank = 0; rank < members.count(); ++rank) {
    if (rank != victim) {
      const Outcome& outcome = members.wait(rank);
      expect_blamed(outcome, "MemberLostError", victim, members.pid(victim));
      EXPECT_EQ(outcome.exit_code, 1);
      EXPECT_LT(outcome.ended - killed, 5s);
    }
  }
}

struct KillCase {
  Way way;
  int in_flight;
  Watch watch;
};

void kill_at_a_random_moment(const KillCase& kill, unsigned seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const int victim = static_cast<int>(random() % kMembers);
  const std::chrono::microseconds delay(random() % 15'000);
  Group group({.members = kMembers, .watch = kill.watch});
  Members members(kMembers, As::processes, [&](Member& me) {
    Exchange exchange = group.join(me.rank());
    std::vector<Buffer> buffers = make_buffers(exchange, kill.way, kill.in_flight);
    if (me.rank() == victim) {
      tests::signal_myself_after(SIGKILL, delay);
    }
    reduce_until_raised(exchange, buffers);
  });
  expect_all_raise_for_killed(members, victim);
}

class KilledRank : public ::testing::TestWithParam<KillCase> {};
INSTANTIATE_TEST_SUITE_P(
    Exchange, KilledRank,
    ::testing::Values(KillCase{Way::in_place, 1, Watch::automatic}, KillCase{Way::in_place, 4, Watch::automatic},
                      KillCase{Way::staged, 1, Watch::automatic}, KillCase{Way::staged, 4, Watch::automatic},
                      KillCase{Way::small, 1, Watch::automatic}, KillCase{Way::small, 8, Watch::automatic},
                      KillCase{Way::in_place, 2, Watch::heartbeat}, KillCase{Way::staged, 2, Watch::heartbeat},
                      KillCase{Way::small, 2, Watch::heartbeat}),
    [](const auto& test) {
      return std::string(name_of(test.param.way)) + "_" + std::to_string(test.param.in_flight) +
             (test.param.watch == Watch::heartbeat ? "_heartbeat" : "");
    });

TEST_P(KilledRank, IsNamedByAllOthersWhateverItWasDoing) {
  for (unsigned seed = 0; seed < 6; ++seed) {
    kill_at_a_random_moment(GetParam(), seed);
  }
}

class ProveKilledRank : public KilledRank {};
INSTANTIATE_TEST_SUITE_P(
    Exchange, ProveKilledRank,
    ::testing::Values(KillCase{Way::in_place, 3, Watch::automatic}, KillCase{Way::staged, 3, Watch::automatic},
                      KillCase{Way::small, 8, Watch::automatic}, KillCase{Way::staged, 3, Watch::heartbeat}),
    [](const auto& test) {
      return std::string(name_of(test.param.way)) + (test.param.watch == Watch::heartbeat ? "_heartbeat" : "");
    });

TEST_P(ProveKilledRank, IsNamedByAllOthersAtThreeHundredMoments) {
  SUMPTER_PROVE_ONLY();
  for (unsigned seed = 1'000; seed < 1'300; ++seed) {
    kill_at_a_random_moment(GetParam(), seed);
  }
}

class FaultsByWay : public ::testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Exchange, FaultsByWay, ::testing::Values(Way::in_place, Way::staged, Way::small),
                         [](const auto& test) { return std::string(tests::name_of(test.param)); });

TEST_P(FaultsByWay, KilledBetweenBeginAndWait) {
  Group group({.members = kMembers});
  Members members(kMembers, As::processes, [&](Member& me) {
    Exchange exchange = group.join(me.rank());
    std::vector<Buffer> buffers = make_buffers(exchange, GetParam(), 2);
    if (me.rank() == 1) {
      const Part part = buffers[0].part();
      buffers[0].fill(2.0F);
      const Work work = exchange.begin_all_reduce({&part, 1}, {});
      ::raise(SIGKILL);
    }
    reduce_until_raised(exchange, buffers);
  });
  expect_all_raise_for_killed(members, 1);
}

TEST_P(FaultsByWay, KilledBetweenOperationsFailsTheNextOneOnly) {
  Group group({.members = kMembers});
  Members members(kMembers, As::processes, [&](Member& me) {
    Exchange exchange = group.join(me.rank());
    Buffer buffer(exchange, GetParam(), count_for(GetParam()), 1.0F);
    exchange.all_reduce(buffer.part());
    if (me.rank() == 2) {
      ::raise(SIGKILL);
    }
    require(buffer.all(kMembers), "a wrong sum");
    me.give("first");
    exchange.all_reduce(buffer.part());
  });
  expect_all_raise_for_killed(members, 2);
  EXPECT_EQ(members.wait(0).result, "first");
  EXPECT_EQ(members.wait(1).result, "first");
}

// Whoever only asks, and never waits, is told as well.
TEST_P(FaultsByWay, KilledWhileTheOthersPoll) {
  Group group({.members = kMembers});
  Members members(kMembers, As::processes, [&](Member& me) {
    Exchange exchange = group.join(me.rank());
    Buffer buffer(exchange, GetParam(), count_for(GetParam()), 1.0F);
    if (me.rank() == 0) {
      ::raise(SIGKILL);
    }
    const Part part = buffer.part();
    Work work = exchange.begin_all_reduce({&part, 1}, {});
    while (!work.test()) {
      std::this_thread::yield();
    }
  });
  ASSERT_EQ(members.wait(0).signal, SIGKILL);
  for (int rank : {1, 2}) {
    expect_blamed(members.wait(rank, 20s), "MemberLostError", 0, members.pid(0));
  }
}

TEST(Exchange, RankThatDiesInsteadOfJoiningIsMissed) {
  Group group({.members = kMembers, .time_limit = 500ms});
  Members members(kMembers, As::processes, [&](Member& me) {
    if (me.rank() == 1) {
      ::raise(SIGKILL);
    }
    group.join(me.rank());
  });
  for (int rank : {0, 2}) {
    EXPECT_EQ(members.wait(rank).kind, "TimeoutError") << describe(members.wait(rank));
    EXPECT_THAT(members.wait(rank).message, HasSubstr("rank 1"));
  }
}

// The stopped member wakes up after all others have raised and gone on to use their memory for something else.
void stop_at_a_random_moment(Way way, int in_flight, unsigned seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const int victim = static_cast<int>(random() % kMembers);
  const std::chrono::microseconds delay(random() % 15'000);
  Group group({.members = kMembers, .time_limit = 2s});
  Members members(kMembers, As::processes, [&](Member& me) {
    Exchange exchange = group.join(me.rank());
    std::vector<Buffer> buffers = make_buffers(exchange, way, in_flight);
    if (me.rank() == victim) {
      tests::signal_myself_after(SIGSTOP, delay);
      reduce_until_raised(exchange, buffers);
    }
    try {
      reduce_until_raised(exchange, buffers);
    } catch (const ExchangeError&) {
      for (Buffer& buffer : buffers) {
        buffer.fill(42.0F);
      }
      me.say("raised");
      me.hear();
      for (Buffer& buffer : buffers) {
        require(buffer.all(42.0F), "the stopped member wrote into memory that was no longer lent to it");
      }
      throw;
    }
  });
  for (int rank = 0; rank < kMembers; ++rank) {
    if (rank != victim) {
      EXPECT_EQ(members.hear(rank, 20s), "raised") << describe(members.wait(rank, 1ms));
    }
  }
  members.send(victim, SIGCONT);
  expect_blamed(members.wait(victim), "TimeoutError", victim, members.pid(victim));
  for (int rank = 0; rank < kMembers; ++rank) {
    if (rank != victim) {
      members.tell(rank, "look at your memory");
      expect_blamed(members.wait(rank), "TimeoutError", victim, members.pid(victim));
    }
  }
}

TEST_P(FaultsByWay, StoppedRankIsNamedAtTheLimitAndWritesNothingWhenItWakes) {
  stop_at_a_random_moment(GetParam(), 1, 1);
  stop_at_a_random_moment(GetParam(), 3, 2);
}

// A member that leaves while its own reducer is in the middle of a piece, and is stopped there.
TEST(Exchange, RankStoppedWhileItLeavesWritesNothingWhenItWakes) {
  for (int round = 0; round < 3; ++round) {
    Group group({.members = kMembers, .piece = std::size_t{16} << 20, .reducers = 1, .time_limit = 2s});
    Members members(kMembers, As::processes, [&](Member& me) {
      std::optional<Exchange> exchange(group.join(me.rank()));
      std::vector<Buffer> buffers;
      for (int i = 0; i < 8; ++i) {
        buffers.emplace_back(*exchange, Way::in_place, 2'000'000, 1.0F);
      }
      exchange->barrier();
      std::vector<Work> works;
      for (Buffer& buffer : buffers) {
        const Part part = buffer.part();
        works.push_back(exchange->begin_all_reduce({&part, 1}, {}));
      }
      if (me.rank() == 1) {
        while (exchange->counters().reducers[0].pieces == 0 && exchange->counters().operations < 9) {
          std::this_thread::yield();
        }
        me.say("in the middle");
        exchange.reset();
        me.hear();
        return;
      }
      for (std::size_t i = 0; i < works.size(); ++i) {
        try {
          works[i].wait();
        } catch (const ExchangeError&) {
          require(buffers[i].all_nan(), "an unfinished all-reduce that left numbers behind");
        }
      }
      for (Buffer& buffer : buffers) {
        buffer.fill(42.0F);
      }
      me.say("settled");
      me.hear();
      for (Buffer& buffer : buffers) {
        require(buffer.all(42.0F), "the leaving member wrote into memory that was no longer lent to it");
      }
    });
    EXPECT_EQ(members.hear(1), "in the middle");
    members.send(1, SIGSTOP);
    for (int rank : {0, 2}) {
      ASSERT_EQ(members.hear(rank, 20s), "settled") << describe(members.wait(rank));
    }
    members.send(1, SIGCONT);
    members.tell(1, "end");
    EXPECT_TRUE(members.wait(1).done) << describe(members.wait(1));
    for (int rank : {0, 2}) {
      members.tell(rank, "look at your memory");
      EXPECT_TRUE(members.wait(rank).done) << describe(members.wait(rank));
    }
  }
}

class ProveStoppedRank : public FaultsByWay {};
INSTANTIATE_TEST_SUITE_P(Exchange, ProveStoppedRank, ::testing::Values(Way::in_place, Way::staged, Way::small),
                         [](const auto& test) { return std::string(tests::name_of(test.param)); });

TEST_P(ProveStoppedRank, WritesNothingWhenItWakesAtThirtyMoments) {
  SUMPTER_PROVE_ONLY();
  for (unsigned seed = 1'000; seed < 1'030; ++seed) {
    stop_at_a_random_moment(GetParam(), 1 + static_cast<int>(seed % 4), seed);
  }
}

}  // namespace
}  // namespace sumpter
