// What a replica says while its batch does not come. Data sets block until the line has been said, so that nothing
// depends on how long anything takes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "coded_dataset.h"
#include "input/ring.h"
#include "sumpter/error.h"

namespace sumpter {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::StartsWith;
using namespace std::chrono_literals;

// Collects lines, and opens a gate when it has so many.
class Lines {
 public:
  Lines(std::size_t wanted, Gate& gate) : wanted_(wanted), gate_(gate) {}

  void add(const std::string& line) {
    const std::lock_guard lock(mutex_);
    lines_.push_back(line);
    if (lines_.size() == wanted_) gate_.open();
  }
  std::vector<std::string> all() const {
    const std::lock_guard lock(mutex_);
    return lines_;
  }

 private:
  const std::size_t wanted_;
  Gate& gate_;
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

std::shared_ptr<CodedDataset> blocked_at(std::size_t item, Gate& gate) {
  return std::make_shared<CodedDataset>(64, [item, &gate](std::size_t index) {
    if (index == item) gate.pass();
  });
}

TEST(BatchRingStall, NamesTheStepTheItemAndTheLoader) {
  Gate gate;
  Lines lines(1, gate);
  BatchRing ring(blocked_at(19, gate), {.batch_size = 8,
                                        .shuffle = false,
                                        .preload = 1,
                                        .loaders = 2,
                                        .first_step = 2,
                                        .stall_after = 3ms,
                                        .stalled = [&](const std::string& line) { lines.add(line); }});
  gate.await_waiting(1);  // a loader has begun the only part of step 2, so the replica cannot
  EXPECT_EQ(ring.next(0)->step(), 2U);
  // Another line may have come before the gate was noticed to be open.
  EXPECT_THAT(lines.all().at(0), MatchesRegex("no input for [0-9.]+ m?s: step 2 waits for item 19 of the data set, "
                                              "which loader [01] has been reading for [0-9.]+ m?s; "
                                              "is its disk or network gone\\?"));
}

TEST(BatchRingStall, SaysItAgain) {
  Gate gate;
  Lines lines(4, gate);
  BatchRing ring(blocked_at(3, gate),
                 {.batch_size = 8, .shuffle = false, .stall_after = 1ms, .stalled = [&](const std::string& line) {
                    lines.add(line);
                  }});
  gate.await_waiting(1);
  EXPECT_TRUE(ring.next(0));  // hangs unless it says it four times
  for (const std::string& line : lines.all()) EXPECT_THAT(line, HasSubstr("step 0 waits for item 3 of the data set"));
}

TEST(BatchRingStall, NamesTheReplicaThatLoads) {
  Gate gate;
  Lines lines(1, gate);
  BatchRing ring(blocked_at(5, gate), {.replicas = 2,
                                       .batch_size = 8,
                                       .shuffle = false,
                                       .preload = 0,
                                       .stall_after = 1ms,
                                       .stalled = [&](const std::string& line) { lines.add(line); }});
  // One of them loads items 4 to 7, and the other one waits for it.
  std::jthread loading([&] { EXPECT_THAT(ring.next(0)->labels(), testing::ElementsAre(0, 1, 2, 3)); });
  std::jthread other([&] { EXPECT_THAT(ring.next(1)->labels(), testing::ElementsAre(4, 5, 6, 7)); });
  loading.join();
  other.join();
  EXPECT_THAT(lines.all().at(0), AllOf(HasSubstr("step 0 waits for item 5 of the data set, which replica "),
                                       HasSubstr(" has been reading for ")));
}

TEST(BatchRingStall, NamesTheReplicaThatHoldsASlotUp) {
  std::optional<Batch> held;
  std::vector<std::string> lines;
  const auto set = std::make_shared<CodedDataset>(64);
  std::optional<BatchRing> ring;
  ring.emplace(
      set,
      RingOptions{
          .replicas = 2, .batch_size = 8, .preload = 0, .stall_after = 1ms, .stalled = [&](const std::string& line) {
            lines.push_back(line);
            if (lines.size() == 1) {
              held = ring->next(1);
            } else {
              held.reset();
            }
          }});
  ASSERT_TRUE(ring->next(0));
  EXPECT_EQ(ring->next(0)->step(), 1U);
  ASSERT_GE(lines.size(), 2U);
  EXPECT_THAT(lines[0], AllOf(StartsWith("no input for "),
                              EndsWith(": step 1 waits for replica 1, which has not asked for step 0 yet")));
  EXPECT_THAT(lines[1], EndsWith(": step 1 waits for step 0 to be released by all replicas"));
}

// Standard error goes into a pipe while it lives.
class ErrorPipe {
 public:
  ErrorPipe() : saved_(dup(STDERR_FILENO)) {
    std::array<int, 2> ends{};
    if (saved_ < 0 || pipe(ends.data()) != 0) throw std::runtime_error("no pipe");
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
    read_ = ends[0];
  }
  ErrorPipe(const ErrorPipe&) = delete;
  ErrorPipe& operator=(const ErrorPipe&) = delete;
  ~ErrorPipe() {
    dup2(saved_, STDERR_FILENO);
    close(saved_);
    close(read_);
  }

  // Blocks until there is one.
  std::string read_line() const {
    std::string line;
    for (char next = 0; read(read_, &next, 1) == 1 && next != '\n';) line.push_back(next);
    return line;
  }

 private:
  const int saved_;
  int read_ = -1;
};

TEST(BatchRingStall, WarnsWhereNobodyListens) {
  Gate gate;
  BatchRing ring(blocked_at(0, gate), {.batch_size = 8, .shuffle = false, .stall_after = 1ms});
  gate.await_waiting(1);
  const ErrorPipe errors;
  std::jthread replica([&] { EXPECT_TRUE(ring.next(0)); });
  const std::string line = errors.read_line();
  gate.open();
  replica.join();  // it writes to the pipe
  EXPECT_THAT(line, StartsWith("sumpter: warning: no input for "));
}

TEST(BatchRingStall, EndsTheWaitWithWhatTheListenerThrows) {
  Gate gate;
  BatchRing ring(blocked_at(0, gate),
                 {.batch_size = 8, .shuffle = false, .stall_after = 1ms, .stalled = [](const std::string& line) {
                    throw std::runtime_error(line);
                  }});
  gate.await_waiting(1);
  EXPECT_THROW(ring.next(0), std::runtime_error);
  gate.open();
  std::optional<Batch> batch;
  while (!batch) {
    try {
      batch = ring.next(0);
    } catch (const std::runtime_error&) {  // the loader has not got there yet
    }
  }
  EXPECT_EQ(batch->step(), 0U);
}

TEST(BatchRingStall, RefusesTimesThatAreNone) {
  const auto set = std::make_shared<CodedDataset>(64);
  EXPECT_THROW(BatchRing(set, {.stall_after = 0ms}), RequestError);
  EXPECT_THROW(BatchRing(set, {.stall_after = std::chrono::milliseconds::max()}), RequestError);
}

}  // namespace
}  // namespace sumpter
