// Waiting for an operation with limits of its own, by several threads, and what it is said to wait for meanwhile.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "sumpter/exchange.h"
#include "tests/exchange/buffers.h"
#include "tests/support/members.h"

namespace sumpter {
namespace {

using namespace std::chrono_literals;
using tests::As;
using tests::Buffer;
using tests::Member;
using tests::Members;
using tests::name_of_rank;
using tests::Outcome;
using tests::require;
using tests::Way;

class Waiting : public ::testing::TestWithParam<As> {};
INSTANTIATE_TEST_SUITE_P(Exchange, Waiting, ::testing::Values(As::threads, As::processes),
                         [](const auto& as) { return std::string(tests::name_of(as.param)); });

TEST_P(Waiting, ForAWhileIsFalseWhileAMemberIsLateAndTrueOnceItHasCome) {
  for (const std::size_t count : {100U, 100'000U}) {
    Group group({.members = 2, .time_limit = 60s});
    Members members(2, GetParam(), [&](Member& me) {
      Exchange exchange = group.join(me.rank());
      Buffer buffer(exchange, Way::staged, count, 1.0F);
      const Part part = buffer.part();
      if (me.rank() == 1) me.hear();
      Work work = exchange.begin_all_reduce({&part, 1}, {});
      if (me.rank() == 0) {
        EXPECT_FALSE(work.wait_for(-1ms));
        EXPECT_FALSE(work.wait_for(0ms));
        EXPECT_FALSE(work.wait_for(30ms));
        const std::string what = "all_reduce number 1 of " + std::to_string(count) + " f32, sum: ";
        EXPECT_EQ(work.pending(), what + name_of_rank(1, exchange.process_of(1)) + " had not arrived");
        me.say("waited");
        EXPECT_TRUE(work.wait_for(std::chrono::milliseconds::max()));
        EXPECT_TRUE(work.wait_for(0ms));
        EXPECT_EQ(work.pending(), what + "finished");
      }
      work.wait();
      require(buffer.all(2.0F), "a wrong sum");
    });
    EXPECT_EQ(members.hear(0), "waited");
    members.tell(1, "come");
    for (const Outcome& outcome : members.wait_all()) {
      EXPECT_TRUE(outcome.done) << describe(outcome);
    }
  }
}

TEST_P(Waiting, WithALimitNamesTheLaggardAndTheLimit) {
  Group group({.members = 3});
  Members members(3, GetParam(), [&](Member& me) {
    Exchange exchange = group.join(me.rank());
    if (me.rank() == 1) me.hear();
    Work work = exchange.begin_barrier("gather to rank 0");
    if (me.rank() != 0) {
      work.wait();
    } else {
      work.wait(300ms);
    }
  });
  const std::string message =
      "gather to rank 0, number 1: after 0.3 s " + name_of_rank(1, members.pid(1)) + " had not arrived";
  for (const int rank : {0, 2, 1}) {
    if (rank == 1) members.tell(1, "come");
    const Outcome& outcome = members.wait(rank);
    EXPECT_EQ(outcome.kind, "TimeoutError") << describe(outcome);
    EXPECT_EQ(outcome.message, message);
    EXPECT_EQ(outcome.culprit, 1);
  }
}

TEST_P(Waiting, WithALimitIsAsGoodAsWithoutWhereAllCome) {
  Group group({.members = 2});
  const auto outcomes = tests::run_members(2, GetParam(), [&](Member& me) {
    Exchange exchange = group.join(me.rank());
    for (const std::size_t count : {100U, 100'000U}) {
      Buffer buffer(exchange, Way::staged, count, 1.0F);
      const Part part = buffer.part();
      exchange.begin_all_reduce({&part, 1}, {}).wait(std::chrono::milliseconds::max());
      require(buffer.all(2.0F), "a wrong sum");
    }
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_TRUE(outcome.done) << describe(outcome);
  }
}

TEST(Exchange, PendingNamesWhoHasNotDoneItsPart) {
  Group group({.members = 3});
  Members members(3, As::processes, [&](Member& me) {
    Exchange exchange = group.join(me.rank());
    Buffer buffer(exchange, Way::staged, 400'000, 1.0F);
    const Part part = buffer.part();
    me.hear();
    Work work = exchange.begin_all_reduce({&part, 1}, {});
    // Ranks 0 and 2 copy in what they can; rank 1 only posts.
    while (me.rank() != 1 && exchange.counters().bytes_copied_in == 0) require(!work.wait_for(0ms), "too early an end");
    me.say("begun");
    me.hear();
    if (me.rank() == 0) {
      EXPECT_EQ(work.pending(), "all_reduce number 1 of 400000 f32, sum: " + name_of_rank(1, exchange.process_of(1)) +
                                    " had not done its part");
    }
    me.say("looked");
    me.hear();
    work.wait();
    require(buffer.all(3.0F), "a wrong sum");
  });
  for (const char* step : {"begun", "looked"}) {
    for (int rank = 0; rank < 3; ++rank) members.tell(rank, "go on");
    for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(members.hear(rank), step);
  }
  for (int rank = 0; rank < 3; ++rank) members.tell(rank, "finish");
  for (const Outcome& outcome : members.wait_all()) {
    EXPECT_TRUE(outcome.done) << describe(outcome);
  }
}

TEST(Exchange, WaitingForShortTimesNoticesADeath) {
  Group group({.members = 2});
  Members members(2, As::processes, [&](Member& me) {
    Exchange exchange = group.join(me.rank());
    if (me.rank() == 1) ::raise(SIGKILL);
    Work work = exchange.begin_barrier();
    while (!work.wait_for(1ms)) {
    }
  });
  EXPECT_EQ(members.wait(1).signal, SIGKILL);
  const Outcome& outcome = members.wait(0, 20s);
  EXPECT_EQ(outcome.kind, "MemberLostError") << describe(outcome);
  EXPECT_EQ(outcome.message, name_of_rank(1, members.pid(1)) + " died before barrier number 1 was finished");
  EXPECT_EQ(outcome.culprit, 1);
}

// All the ways to wait, at once.
std::vector<std::thread> wait_in_threads(Work& work, std::atomic<int>& done, std::atomic<int>& raised) {
  const auto start = [&](auto wait) {
    return std::thread([&, wait] {
      try {
        wait();
        ++done;
      } catch (const MemberLostError&) {
        ++raised;
      }
    });
  };
  std::vector<std::thread> threads;
  threads.push_back(start([&work] { work.wait(); }));
  threads.push_back(start([&work] { work.wait(60s); }));
  threads.push_back(start([&work] {
    while (!work.wait_for(1ms)) {
    }
  }));
  threads.push_back(start([&work] {
    while (!work.test()) std::this_thread::yield();
  }));
  return threads;
}

TEST_P(Waiting, InSeveralThreadsForOneOperationEndsInAllOfThem) {
  for (const bool good : {true, false}) {
    for (const std::size_t count : {100U, 300'000U}) {
      SCOPED_TRACE(good);
      SCOPED_TRACE(count);
      Group group({.members = 2});
      Members members(2, GetParam(), [&](Member& me) {
        Exchange exchange = group.join(me.rank());
        Buffer buffer(exchange, Way::staged, count, 1.0F);
        const Part part = buffer.part();
        if (me.rank() == 1) {
          me.hear();
          if (!good) {
            exchange.abort("a reason");
            return;
          }
        }
        Work work = exchange.begin_all_reduce({&part, 1}, {});
        std::atomic<int> done{0}, raised{0};
        auto threads = wait_in_threads(work, done, raised);
        if (me.rank() == 0) me.say("waiting");
        for (std::thread& thread : threads) thread.join();
        EXPECT_EQ(done.load(), good ? 4 : 0);
        EXPECT_EQ(raised.load(), good ? 0 : 4);
        require(good ? buffer.all(2.0F) : buffer.all_nan(), "wrong values");
      });
      EXPECT_EQ(members.hear(0), "waiting");
      members.tell(1, "come");
      for (const Outcome& outcome : members.wait_all()) {
        EXPECT_TRUE(outcome.done) << describe(outcome);
      }
    }
  }
}

TEST(Exchange, WorkWithoutAnOperationRefusesToBeWaitedFor) {
  Work work;
  EXPECT_THROW(work.wait(1s), RequestError);
  EXPECT_THROW(work.wait_for(1s), RequestError);
  EXPECT_THROW(work.test(), RequestError);
  EXPECT_THROW((void)work.pending(), RequestError);
}

}  // namespace
}  // namespace sumpter
