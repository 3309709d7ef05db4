// Reducer threads: paused and woken, bound to cores, and more of them on one member than on another.
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "base/thread.h"
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
using tests::Outcome;
using tests::require;
using tests::Way;

class Reducers : public ::testing::TestWithParam<As> {};
INSTANTIATE_TEST_SUITE_P(Exchange, Reducers, ::testing::Values(As::threads, As::processes),
                         [](const auto& as) { return std::string(tests::name_of(as.param)); });

std::uint64_t bytes_by_reducers(const Exchange& exchange) {
  std::uint64_t bytes = 0;
  for (const WorkerCounters& reducer : exchange.counters().reducers) bytes += reducer.bytes;
  return bytes;
}

// An all_reduce that the members do not help with: the reducers alone do it.
void reduce_without_members(Exchange& exchange, Buffer& buffer) {
  const Part part = buffer.part();
  const std::uint64_t operations = exchange.counters().operations;
  Work work = exchange.begin_all_reduce({&part, 1}, {});
  while (exchange.counters().operations == operations) std::this_thread::sleep_for(1ms);
  work.wait();
}

TEST_P(Reducers, DoNothingWhilePausedAndAllOfItAfterwards) {
  constexpr std::size_t kCount = 100'000;
  for (const Way way : {Way::in_place, Way::staged}) {
    SCOPED_TRACE(way);
    Group group({.members = 2, .piece = 4'096, .reducers = 2});
    const auto outcomes = tests::run_members(2, GetParam(), [&](Member& me) {
      Exchange exchange = group.join(me.rank());
      Buffer buffer(exchange, way, kCount, 1.0F);
      exchange.pause_reducers(true);
      exchange.pause_reducers(true);  // which changes nothing
      exchange.barrier();             // all are paused
      exchange.all_reduce(buffer.part());
      exchange.barrier();
      require(buffer.all(2.0F), "a wrong sum");
      const std::uint64_t paused = exchange.counters().own.bytes;
      EXPECT_EQ(bytes_by_reducers(exchange), 0U);

      exchange.pause_reducers(false);
      reduce_without_members(exchange, buffer);
      require(buffer.all(4.0F), "a wrong sum");
      exchange.barrier();
      EXPECT_EQ(exchange.counters().own.bytes, paused);
      // Threads count the reducers of the group.
      const std::uint64_t awake = bytes_by_reducers(exchange);

      exchange.pause_reducers(true);
      exchange.barrier();
      exchange.all_reduce(buffer.part());
      require(buffer.all(8.0F), "a wrong sum");
      exchange.barrier();
      EXPECT_EQ(bytes_by_reducers(exchange), awake);
      me.give(tests::bytes_of(std::vector<std::uint64_t>{paused, exchange.counters().own.bytes - paused, awake}));
    });  // members leave with their reducers asleep
    std::uint64_t paused = 0, again = 0, awake = 0;
    for (const Outcome& outcome : outcomes) {
      ASSERT_TRUE(outcome.done) << describe(outcome);
      const auto bytes = tests::values_of<std::uint64_t>(outcome.result);
      paused += bytes.at(0);
      again += bytes.at(1);
      if (GetParam() == As::processes || outcome.rank == 0) awake += bytes.at(2);
    }
    EXPECT_EQ(paused, 2 * kCount * 4);
    EXPECT_EQ(awake, 2 * kCount * 4);
    EXPECT_EQ(again, 2 * kCount * 4);
  }
}

TEST_P(Reducers, PausedOnesDoNotKeepAnAbortedGroup) {
  Group group({.members = 2, .reducers = 2});
  const auto outcomes = tests::run_members(2, GetParam(), [&](Member& me) {
    Exchange exchange = group.join(me.rank());
    exchange.pause_reducers(true);
    exchange.barrier();
    if (me.rank() == 1) exchange.abort("enough");
    exchange.barrier();
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.kind, "MemberLostError") << describe(outcome);
    EXPECT_EQ(outcome.culprit, 1);
  }
}

// The cores of this process's reducers, each with the only one that it may use, or -1.
std::vector<int> cores_of_reducers() {
  std::vector<int> cores;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    if (read_file(task.path() / "comm") != "reducer\n") continue;
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(std::stoi(task.path().filename()), sizeof(set), &set) != 0) continue;
    int only = -1;
    for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&set) == 1; ++core) {
      if (CPU_ISSET(core, &set)) only = core;
    }
    cores.push_back(only);
  }
  std::ranges::sort(cores);
  return cores;
}

TEST_P(Reducers, RunOnTheirCores) {
  const std::vector<int> usable = numbers_of_usable_cores();
  const int first = usable.front(), last = usable.back();
  // Of a group of threads all together, dealt out to the members; of each process its own.
  std::vector<int> expected = {first, last, first, last, first};
  std::ranges::sort(expected);
  Group group({.members = 2, .reducers = 5, .reducer_cores = {first, last}});
  const auto outcomes = tests::run_members(2, GetParam(), [&](Member& me) {
    Exchange exchange = group.join(me.rank());
    exchange.barrier();
    const auto start = Clock::now();
    std::vector<int> found = cores_of_reducers();
    while (found != expected && Clock::now() - start < 20s) {  // they bind themselves
      std::this_thread::sleep_for(1ms);
      found = cores_of_reducers();
    }
    EXPECT_EQ(found, expected);
    EXPECT_EQ(numbers_of_usable_cores(), usable);  // the member itself is not bound
    exchange.barrier();
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_TRUE(outcome.done) << describe(outcome);
  }
}

TEST(Connect, MembersMayHaveReducersOfDifferentNumbersAndCores) {
  const tests::TemporaryDirectory meeting;
  const std::vector<int> usable = numbers_of_usable_cores();
  const auto outcomes = tests::run_members(3, As::processes, [&](Member& me) {
    FileRendezvous rendezvous(meeting.path());
    GroupOptions options{.members = 3, .piece = 4'096, .reducers = me.rank()};
    if (me.rank() == 1) options.reducer_cores = {usable.back()};
    Exchange exchange = Exchange::connect(me.rank(), options, rendezvous);
    EXPECT_EQ(exchange.counters().reducers.size(), static_cast<std::size_t>(me.rank()));
    for (const Way way : {Way::in_place, Way::staged, Way::small}) {
      Buffer buffer(exchange, way, way == Way::small ? 100 : 100'000, 1.0F);
      exchange.all_reduce(buffer.part());
      require(buffer.all(3.0F), "a wrong sum");
      exchange.barrier();
    }
    // In place, any reducer does what there is to do for all members.
    Buffer buffer(exchange, Way::in_place, 100'000, 1.0F);
    const Part part = buffer.part();
    Work work = exchange.begin_all_reduce({&part, 1}, {});
    if (me.rank() != 0) {
      const std::uint64_t before = 6;
      while (exchange.counters().operations == before) std::this_thread::sleep_for(1ms);
    }
    work.wait();
    require(buffer.all(3.0F), "a wrong sum");
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_TRUE(outcome.done) << describe(outcome);
  }
}

}  // namespace
}  // namespace sumpter
