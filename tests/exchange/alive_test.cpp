// What a member asks of its group besides work: whether it still lives, whether somebody calls, who its members are.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "sumpter/exchange.h"
#include "tests/exchange/buffers.h"
#include "tests/support/members.h"
#include "tests/support/temporary_directory.h"

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

class Alive : public ::testing::TestWithParam<As> {};
INSTANTIATE_TEST_SUITE_P(Exchange, Alive, ::testing::Values(As::threads, As::processes),
                         [](const auto& as) { return std::string(tests::name_of(as.param)); });

void expect_done(const std::vector<Outcome>& outcomes) {
  for (const Outcome& outcome : outcomes) {
    EXPECT_TRUE(outcome.done) << describe(outcome);
  }
}

TEST_P(Alive, CheckThrowsWhatTheGroupWasAbortedForAndNothingBefore) {
  Group group({.members = 2});
  const auto outcomes = tests::run_members(2, GetParam(), [&](Member& me) {
    Exchange exchange = group.join(me.rank());
    exchange.check();
    exchange.barrier();
    exchange.check();
    if (me.rank() == 1) exchange.abort("learning rate is NaN");
    while (true) {
      exchange.check();
      std::this_thread::sleep_for(1ms);
    }
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.kind, "MemberLostError") << describe(outcome);
    EXPECT_EQ(outcome.culprit, 1);
    EXPECT_EQ(outcome.message, name_of_rank(1, outcomes[1].pid) + " aborted the group: learning rate is NaN");
  }
}

TEST(Exchange, CheckNamesAMemberThatWasKilled) {
  for (const Watch watch : {Watch::automatic, Watch::heartbeat}) {
    Group group({.members = 3, .watch = watch});
    Members members(3, As::processes, [&](Member& me) {
      Exchange exchange = group.join(me.rank());
      exchange.barrier();
      exchange.check();
      me.say("alive");
      me.hear();
      if (me.rank() == 1) ::raise(SIGKILL);
      while (true) {
        exchange.check();
        require(watch == Watch::heartbeat, "a dead process that was not noticed at once");
        std::this_thread::sleep_for(1ms);
      }
    });
    for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(members.hear(rank), "alive");
    members.tell(1, "die");
    EXPECT_EQ(members.wait(1).signal, SIGKILL);
    for (const int rank : {0, 2}) {
      members.tell(rank, "look");
      const Outcome& outcome = members.wait(rank, 20s);
      EXPECT_EQ(outcome.kind, "MemberLostError") << describe(outcome);
      EXPECT_EQ(outcome.culprit, 1);
      EXPECT_EQ(outcome.message, name_of_rank(1, members.pid(1)) + " died");
    }
  }
}

TEST_P(Alive, CheckHasNothingAgainstAMemberThatLeftInPeace) {
  Group group({.members = 2});
  Members members(2, GetParam(), [&](Member& me) {
    Exchange exchange = group.join(me.rank());
    exchange.barrier();
    if (me.rank() == 1) return;
    me.hear();
    exchange.check();
  });
  EXPECT_TRUE(members.wait(1).done) << describe(members.wait(1));
  members.tell(0, "look");
  expect_done(members.wait_all());
}

TEST_P(Alive, CallReachesWhoWaitsAlreadyAndWhoWaitsLater) {
  Group group({.members = 3});
  Members members(3, GetParam(), [&](Member& me) {
    Exchange exchange = group.join(me.rank());
    if (me.rank() == 0) {
      std::atomic<bool> called{false};
      std::jthread waiter([&](const std::stop_token& stop) { called = exchange.wait_until_called(stop); });
      me.say("waiting");
      waiter.join();
      require(called, "a call that was not heard");
    }
    if (me.rank() == 1) {
      me.hear();
      exchange.call();
      exchange.call();
    }
    if (me.rank() == 2) me.hear();
    require(exchange.wait_until_called({}), "a call that was not heard afterwards");
    require(exchange.wait_until_called({}), "a call that was heard only once");
  });
  EXPECT_EQ(members.hear(0), "waiting");
  members.tell(1, "call");
  EXPECT_TRUE(members.wait(1).done) << describe(members.wait(1));
  members.tell(2, "wait");
  expect_done(members.wait_all());
}

TEST_P(Alive, WaitForACallEndsWhenItIsStopped) {
  Group group({.members = 2});
  expect_done(tests::run_members(2, GetParam(), [&](Member& me) {
    Exchange exchange = group.join(me.rank());
    for (int round = 0; round < 50; ++round) {
      std::atomic<int> started{0}, called{0};
      {
        std::vector<std::jthread> waiters;
        for (int i = 0; i < 3; ++i) {
          waiters.emplace_back([&](const std::stop_token& stop) {
            ++started;
            if (exchange.wait_until_called(stop)) ++called;
          });
        }
        while (round % 2 == 0 && started < 3) std::this_thread::yield();
      }  // stops them, asleep or not
      require(called == 0, "a call that nobody made");
    }
    std::stop_source stopped;
    stopped.request_stop();
    require(!exchange.wait_until_called(stopped.get_token()), "a call that nobody made");
    exchange.barrier();
    exchange.call();
    require(exchange.wait_until_called(stopped.get_token()), "a call that a stopped member did not hear");
  }));
}

TEST_P(Alive, WaitForACallEndsWhenTheGroupIsAborted) {
  Group group({.members = 3});
  Members members(3, GetParam(), [&](Member& me) {
    Exchange exchange = group.join(me.rank());
    if (me.rank() == 1) {
      me.hear();
      exchange.abort("enough");
    } else {
      me.say("waiting");
    }
    require(!exchange.wait_until_called({}), "a call that nobody made");
  });
  EXPECT_EQ(members.hear(0), "waiting");
  EXPECT_EQ(members.hear(2), "waiting");
  members.tell(1, "abort");
  expect_done(members.wait_all());
}

// Until the thread sleeps.
void wait_until_asleep(std::atomic<pid_t>& thread) {
  while (true) {
    if (thread != 0) {
      const std::string stat = read_file("/proc/self/task/" + std::to_string(thread) + "/stat");
      if (stat.at(stat.rfind(')') + 2) == 'S') return;
    }
    std::this_thread::sleep_for(1ms);
  }
}

TEST_P(Alive, WaitForACallEndsWhenItsMemberLeavesAndNotWhenAnotherDoes) {
  Group group({.members = 2});
  Members members(2, GetParam(), [&](Member& me) {
    std::optional<Exchange> exchange(group.join(me.rank()));
    exchange->barrier();
    if (me.rank() == 1) return;
    std::atomic<pid_t> thread{0};
    std::atomic<int> answer{-1};
    std::thread waiter([&] {
      thread = static_cast<pid_t>(syscall(SYS_gettid));
      answer = exchange->wait_until_called({}) ? 1 : 0;
    });
    me.hear();  // the other has gone
    wait_until_asleep(thread);
    require(answer == -1, "a wait that ended for no reason");
    exchange.reset();
    waiter.join();
    require(answer == 0, "a call that nobody made");
  });
  EXPECT_TRUE(members.wait(1).done) << describe(members.wait(1));
  members.tell(0, "go on");
  expect_done(members.wait_all());
}

TEST_P(Alive, ProcessesOfMembersAreKnown) {
  Group group({.members = 3});
  Members members(3, GetParam(), [&](Member& me) {
    const Exchange exchange = group.join(me.rank());
    std::vector<std::int64_t> processes;
    for (int rank = 0; rank < 3; ++rank) processes.push_back(exchange.process_of(rank));
    me.give(tests::bytes_of(processes));
    EXPECT_THROW((void)exchange.process_of(3), RequestError);
    EXPECT_THROW((void)exchange.process_of(-1), RequestError);
  });
  const std::vector<std::int64_t> expected = {members.pid(0), members.pid(1), members.pid(2)};
  for (const Outcome& outcome : members.wait_all()) {
    EXPECT_TRUE(outcome.done) << describe(outcome);
    EXPECT_EQ(tests::values_of<std::int64_t>(outcome.result), expected);
  }
}

TEST(Connect, ArenaBytesGrowByWhatAnyMemberAllocates) {
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  const tests::TemporaryDirectory meeting;
  expect_done(tests::run_members(2, As::processes, [&](Member& me) {
    FileRendezvous rendezvous(meeting.path());
    Exchange exchange = Exchange::connect(me.rank(), {.members = 2}, rendezvous);
    exchange.barrier();
    const std::size_t before = exchange.arena_bytes();
    exchange.barrier();
    std::optional<SharedMemory> memory(exchange.allocate(kBytes));
    exchange.barrier();
    EXPECT_EQ(exchange.arena_bytes(), before + 2 * kBytes);
    exchange.barrier();
    memory.reset();
    exchange.barrier();
    EXPECT_EQ(exchange.arena_bytes(), before);
    exchange.barrier();
  }));
}

// Each has an arena mapping and requests of its own, as processes have.
TEST(Connect, ThreadsOfOneProcessMayConnectToo) {
  const tests::TemporaryDirectory meeting;
  expect_done(tests::run_members(3, As::threads, [&](Member& me) {
    FileRendezvous rendezvous(meeting.path());
    Exchange exchange = Exchange::connect(me.rank(), {.members = 3, .piece = 4'096, .reducers = 1}, rendezvous);
    for (const Way way : {Way::in_place, Way::staged, Way::small}) {
      Buffer buffer(exchange, way, way == Way::small ? 100 : 100'000, 1.0F);
      exchange.all_reduce(buffer.part());
      require(buffer.all(3.0F), "a wrong sum");
      exchange.barrier();
    }
    const ExchangeCounters counters = exchange.counters();
    EXPECT_EQ(counters.in_place, 1U);
    EXPECT_EQ(counters.staged, 1U);
    EXPECT_EQ(counters.small, 4U);
  }));
}

}  // namespace
}  // namespace sumpter
