// Members that throw, leave, abort or forget their work, without a process dying of it: what the others are told, and
// that nothing is left behind when groups come and go.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "sumpter/exchange.h"
#include "tests/exchange/buffers.h"
#include "tests/support/members.h"

namespace sumpter {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using tests::As;
using tests::Buffer;
using tests::Member;
using tests::Members;
using tests::Outcome;
using tests::require;
using tests::run_members;
using tests::Way;

constexpr int kMembers = 3;

class Leaving : public ::testing::TestWithParam<As> {};
INSTANTIATE_TEST_SUITE_P(Exchange, Leaving, ::testing::Values(As::threads, As::processes),
                         [](const auto& as) { return std::string(tests::name_of(as.param)); });

void expect_lost(const Outcome& outcome, int culprit, const std::string& reason) {
  SCOPED_TRACE(describe(outcome));
  EXPECT_EQ(outcome.kind, "MemberLostError");
  EXPECT_EQ(outcome.culprit, culprit);
  EXPECT_THAT(outcome.message, HasSubstr("rank " + std::to_string(culprit)));
  EXPECT_THAT(outcome.message, HasSubstr(reason));
}

// Every kind of operation with an output of 2,000 or 300,000 floats, begun by a member whose partner has left.
using Begin = std::function<Work(Exchange&, Buffer& input, Buffer& output)>;
const std::vector<std::pair<std::string, Begin>>& operations_with_output() {
  static const std::vector<std::pair<std::string, Begin>> kinds = {
      {"all_reduce",
       [](Exchange& exchange, Buffer&, Buffer& output) {
         const Part part = output.part();
         return exchange.begin_all_reduce({&part, 1}, {});
       }},
      {"broadcast", [](Exchange& exchange, Buffer&,
                       Buffer& output) { return exchange.begin_broadcast(output.part(), ElementType::f32, 1); }},
      {"all_gather",
       [](Exchange& exchange, Buffer& input, Buffer& output) {
         const Part part{input.part().data, output.part().count / kMembers};
         return exchange.begin_all_gather(part, output.part(), ElementType::f32);
       }},
      {"reduce_scatter",
       [](Exchange& exchange, Buffer& input, Buffer& output) {
         const Part part{output.part().data, input.part().count / kMembers};
         return exchange.begin_reduce_scatter(input.part(), part, {});
       }},
  };
  return kinds;
}

TEST_P(Leaving, MemberThatThrowsIsNamedAndUnfinishedOutputsAreNaN) {
  for (const std::size_t count : {3'000U, 300'000U}) {
    for (const auto& [name, begin] : operations_with_output()) {
      SCOPED_TRACE(name + " of " + std::to_string(count));
      Group group({.members = kMembers});
      const auto outcomes = run_members(kMembers, GetParam(), [&, &begin_one = begin](Member& me) {
        Exchange exchange = group.join(me.rank());
        exchange.barrier();
        if (me.rank() == 1) {
          throw std::runtime_error("the data set is torn");
        }
        Buffer input(exchange, Way::staged, count, 1.0F);
        Buffer output(exchange, Way::staged, count, 1.0F);
        Work work = begin_one(exchange, input, output);
        try {
          work.wait();
        } catch (const MemberLostError&) {
          // A reduce_scatter's output is the first third of the buffer.
          const auto third = output.values().first(count / kMembers);
          require(std::ranges::all_of(third, [](float x) { return std::isnan(x); }), "an output that is not NaN");
          throw;
        }
      });
      EXPECT_EQ(outcomes[1].message, "the data set is torn");
      expect_lost(outcomes[0], 1, "left");
      expect_lost(outcomes[2], 1, "left");
    }
  }
}

TEST_P(Leaving, InputsSurviveAFault) {
  for (const std::size_t count : {3'000U, 300'000U}) {
    Group group({.members = kMembers});
    const auto outcomes = run_members(kMembers, GetParam(), [&](Member& me) {
      Exchange exchange = group.join(me.rank());
      exchange.barrier();
      if (me.rank() == 1) {
        return;
      }
      Buffer buffer(exchange, Way::staged, count, 5.0F);
      try {
        exchange.broadcast(buffer.part(), ElementType::f32, 0);
      } catch (const MemberLostError&) {
        require(me.rank() == 0 ? buffer.all(5.0F) : buffer.all_nan(), "a root that lost its data, or an old output");
        throw;
      }
    });
    expect_lost(outcomes[0], 1, "left");
    expect_lost(outcomes[2], 1, "left");
  }
}

TEST_P(Leaving, MemberThatFinishedItsPartMayLeaveBeforeTheOthersFinish) {
  // Small and in-place operations need nothing of a member but its descriptor once it has posted.
  for (const Way way : {Way::small, Way::in_place}) {
    SCOPED_TRACE(way);
    Group group({.members = kMembers});
    Members members(kMembers, GetParam(), [&](Member& me) {
      Exchange exchange = group.join(me.rank());
      Buffer buffer(exchange, way, way == Way::small ? 500 : 500'000, 1.0F);
      const Part part = buffer.part();
      Work work = exchange.begin_all_reduce({&part, 1}, {});
      if (me.rank() != 0) {
        me.say("begun");
        me.hear();
      }
      work.wait();
      require(buffer.all(kMembers), "a wrong sum");
    });
    EXPECT_EQ(members.hear(1), "begun");
    EXPECT_EQ(members.hear(2), "begun");
    EXPECT_TRUE(members.wait(0).done) << describe(members.wait(0));
    for (int rank : {1, 2}) {
      members.tell(rank, "finish");
      EXPECT_TRUE(members.wait(rank).done) << describe(members.wait(rank));
    }
  }
}

TEST_P(Leaving, LastOperationThenLeaveIsNeverAFault) {
  for (const Way way : {Way::in_place, Way::staged, Way::small}) {
    for (int round = 0; round < 10; ++round) {
      SCOPED_TRACE(way);
      Group group({.members = kMembers});
      const auto outcomes = run_members(kMembers, GetParam(), [&](Member& me) {
        Exchange exchange = group.join(me.rank());
        Buffer buffer(exchange, way, way == Way::small ? 64 : 100'000, 1.0F);
        exchange.all_reduce(buffer.part());
        require(buffer.all(kMembers), "a wrong sum");
        // Roots and sources are through long before those who read from them.
        exchange.broadcast(buffer.part(), ElementType::f32, round % kMembers);
      });
      for (const Outcome& outcome : outcomes) {
        EXPECT_TRUE(outcome.done) << describe(outcome);
      }
    }
  }
}

TEST_P(Leaving, AbandonedWorkIsFinishedByItsDestructor) {
  for (const Way way : {Way::in_place, Way::staged, Way::small}) {
    SCOPED_TRACE(way);
    Group group({.members = kMembers});
    const auto outcomes = run_members(kMembers, GetParam(), [&](Member& me) {
      Exchange exchange = group.join(me.rank());
      Buffer first(exchange, way, way == Way::small ? 100 : 100'000, 1.0F);
      Buffer second(exchange, way, way == Way::small ? 100 : 100'000, 2.0F);
      const Part parts[] = {first.part(), second.part()};
      {
        const Work abandoned = exchange.begin_all_reduce({&parts[0], 1}, {});
        Work replaced = exchange.begin_all_reduce({&parts[1], 1}, {});
        replaced = Work();
        require(second.all(2.0F * kMembers), "a Work that was replaced before it was finished");
      }
      require(first.all(kMembers), "a Work that was destroyed before it was finished");
    });
    for (const Outcome& outcome : outcomes) {
      EXPECT_TRUE(outcome.done) << describe(outcome);
    }
  }
}

TEST_P(Leaving, AbortFromAnotherThreadReachesAll) {
  Group group({.members = kMembers});
  const auto outcomes = run_members(kMembers, GetParam(), [&](Member& me) {
    Exchange exchange = group.join(me.rank());
    exchange.barrier();
    if (me.rank() == 2) {
      std::thread([&] {
        exchange.abort("learning rate is NaN");
        exchange.abort("a second reason, which nobody hears");
      }).join();
    }
    try {
      exchange.barrier();
    } catch (const MemberLostError&) {
      EXPECT_THROW(exchange.begin_barrier(), MemberLostError) << "an aborted group takes no more work";
      throw;
    }
  });
  for (const Outcome& outcome : outcomes) {
    expect_lost(outcome, 2, "learning rate is NaN");
  }
}

TEST_P(Leaving, ParentAbortsForAMemberThatCannot) {
  Group group({.members = kMembers});
  Members members(kMembers, GetParam(), [&](Member& me) {
    Exchange exchange = group.join(me.rank());
    me.say("joined");
    if (me.rank() == 1) {
      me.hear();
    }
    exchange.barrier();
  });
  for (int rank = 0; rank < kMembers; ++rank) {
    EXPECT_EQ(members.hear(rank), "joined");
  }
  group.abort(1, "it printed a stack trace");
  expect_lost(members.wait(0), 1, "it printed a stack trace");
  expect_lost(members.wait(2), 1, "it printed a stack trace");
  members.tell(1, "go on");
  expect_lost(members.wait(1), 1, "it printed a stack trace");
}

class Torn : public SumConsumer {
 public:
  explicit Torn(int good) : left_(good) {}
  void consume(std::size_t, std::size_t, std::span<const float>) override {
    if (left_.fetch_sub(1) <= 0) {
      throw std::runtime_error("the optimizer has no state");
    }
  }

 private:
  std::atomic<int> left_;
};

TEST(Exchange, ConsumerThatThrowsAbortsTheGroupWithItsMessage) {
  for (const int reducers : {0, 2}) {
    for (const int good : {0, 1, 40}) {
      SCOPED_TRACE("reducers " + std::to_string(reducers) + ", blocks before the fault " + std::to_string(good));
      Group group({.members = kMembers, .piece = 16'384, .reducers = reducers});
      Torn consumer(good);
      const auto outcomes = run_members(kMembers, As::threads, [&](Member& me) {
        Exchange exchange = group.join(me.rank());
        Buffer buffer(exchange, Way::staged, 500'000, 1.0F);
        exchange.all_reduce(buffer.part(), {.consumer = &consumer});
      });
      for (const Outcome& outcome : outcomes) {
        // Whoever ran the consumer may get the original exception.
        EXPECT_TRUE(outcome.kind == "MemberLostError" || outcome.kind == "exception") << describe(outcome);
        EXPECT_THAT(outcome.message, HasSubstr("the optimizer has no state"));
      }
    }
  }
}

// What a process holds that a leak would add to.
struct Holdings {
  std::size_t descriptors, threads, arena_mappings, mappings;
};
Holdings holdings() {
  const auto entries = [](const char* directory) {
    return static_cast<std::size_t>(
        std::distance(std::filesystem::directory_iterator(directory), std::filesystem::directory_iterator()));
  };
  std::ifstream maps("/proc/self/maps");
  std::size_t arena = 0, all = 0;
  for (std::string line; std::getline(maps, line); ++all) {
    if (line.find("sumpter-arena") != std::string::npos) {
      ++arena;
    }
  }
  return {entries("/proc/self/fd"), entries("/proc/self/task"), arena, all};
}
// The allocator and threads that are just ending make small differences; a leak of one per group would make a hundred.
void require_no_growth(const Holdings& before, const Holdings& after) {
  require(after.descriptors <= before.descriptors + 4, "descriptors that stay");
  require(after.threads <= before.threads + 4, "threads that stay");
  require(after.arena_mappings == 0 && before.arena_mappings == 0, "mappings of an arena that stay");
#if !defined(__SANITIZE_THREAD__)  // whose shadow of this memory is mapped too, and comes in pieces
  require(after.mappings <= before.mappings + 30, "mappings that stay");
#endif
}

TEST(Exchange, HundredGroupsOfThreadsAbortedOneAfterAnotherLeaveNothing) {
  const auto one = [] {
    Group group({.members = kMembers, .reducers = 1});
    const auto outcomes = run_members(kMembers, As::threads, [&](Member& me) {
      Exchange exchange = group.join(me.rank());
      Buffer buffer(exchange, Way::in_place, 100'000, 1.0F);
      exchange.all_reduce(buffer.part());
      require(buffer.all(kMembers), "a wrong sum");
      if (me.rank() == 0) {
        exchange.abort("enough");
      }
      exchange.all_reduce(buffer.part());
    });
    for (const Outcome& outcome : outcomes) {
      expect_lost(outcome, 0, "enough");
    }
  };
  for (int i = 0; i < 10; ++i) {
    one();
  }
  const Holdings before = holdings();
  for (int i = 0; i < 100; ++i) {
    one();
  }
  EXPECT_NO_THROW(require_no_growth(before, holdings()));
}

TEST(Exchange, HundredGroupsOfProcessesAbortedOneAfterAnotherLeaveNothing) {
  const auto directory = std::filesystem::path(::testing::TempDir()) / ("sumpter-" + std::to_string(::getpid()));
  const auto outcomes = run_members(2, As::processes, [&](Member& me) {
    const auto one = [&](int i) {
      const auto place = directory / std::to_string(i);
      std::filesystem::create_directories(place);
      FileRendezvous rendezvous(place);
      Exchange exchange = Exchange::connect(me.rank(), {.members = 2, .reducers = i % 2}, rendezvous);
      Buffer buffer(exchange, i % 2 == 0 ? Way::in_place : Way::staged, 50'000, 1.0F);
      exchange.all_reduce(buffer.part());
      require(buffer.all(2.0F), "a wrong sum");
      exchange.barrier();  // so that the abort finds no all_reduce unfinished
      if (me.rank() == 1) {
        exchange.abort("enough");
      }
      try {
        exchange.all_reduce(buffer.part());
        require(false, "work that an aborted group took");
      } catch (const MemberLostError& error) {
        require(error.culprit() == 1, error.what());
      }
    };
    for (int i = 0; i < 10; ++i) {
      one(i);
    }
    const Holdings before = holdings();
    for (int i = 10; i < 110; ++i) {
      one(i);
    }
    require_no_growth(before, holdings());
  });
  std::filesystem::remove_all(directory);
  for (const Outcome& outcome : outcomes) {
    EXPECT_TRUE(outcome.done) << describe(outcome);
  }
}

}  // namespace
}  // namespace sumpter
