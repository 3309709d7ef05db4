// Where threads run: the cores that they may use, and what they give way to.
#include "base/thread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <thread>
#include <vector>

#include "sumpter/error.h"
#include "tests/support/error_of.h"

namespace sumpter {
namespace {

using ::testing::StartsWith;

TEST(Thread, IsBoundToOneCoreAndToNoneThatThereIsNot) {
  const std::vector<int> usable = numbers_of_usable_cores();
  ASSERT_EQ(usable.size(), static_cast<std::size_t>(usable_cores()));
  for (const int core : usable) {
    std::thread([&] {
      bind_this_thread(core);
      EXPECT_EQ(numbers_of_usable_cores(), std::vector<int>{core});
      for (const int wrong : {-1, 1'024}) {
        EXPECT_THAT(tests::error_of<SystemError>([&] { bind_this_thread(wrong); }),
                    StartsWith("a thread cannot be bound to core " + std::to_string(wrong) + ": "));
      }
      EXPECT_EQ(numbers_of_usable_cores(), std::vector<int>{core});
    }).join();
  }
  EXPECT_EQ(numbers_of_usable_cores(), usable);
}

TEST(Thread, RunsAsBatchAloneAmongItsProcesssThreads) {
  const int before = sched_getscheduler(0);
  std::thread([] {
    EXPECT_TRUE(run_as_batch());
    EXPECT_EQ(sched_getscheduler(0), SCHED_BATCH);
    EXPECT_TRUE(run_as_batch());
  }).join();
  EXPECT_EQ(sched_getscheduler(0), before);
}

}  // namespace
}  // namespace sumpter
