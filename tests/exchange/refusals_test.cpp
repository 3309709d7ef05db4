// What the exchange refuses: operations that differ between members, options out of range, ranks taken twice, members
// that never come.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "base/thread.h"
#include "sumpter/exchange.h"
#include "tests/exchange/buffers.h"
#include "tests/support/error_of.h"
#include "tests/support/members.h"
#include "tests/support/temporary_directory.h"

namespace sumpter {
namespace {

using namespace std::chrono_literals;
using ::testing::AnyOf;
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
constexpr int kOdd = 1;  // the rank that calls something else
constexpr std::size_t kCount = 600'000;

class Ignore : public SumConsumer {
  void consume(std::size_t, std::size_t, std::span<const float>) override {}
};
Ignore one_consumer;
Ignore other_consumer;

// An operation over some elements of `values`, which holds kCount.
using Begin = std::function<Work(Exchange&, float* values)>;

Begin all_reduce(std::vector<std::size_t> counts, AllReduceOptions options = {}) {
  return [counts = std::move(counts), options](Exchange& exchange, float* values) {
    std::vector<Part> parts;
    for (const std::size_t count : counts) {
      parts.push_back({values, count});
      values += count;
    }
    return exchange.begin_all_reduce(parts, options);
  };
}
Begin broadcast(std::size_t count, int root, ElementType type = ElementType::f32) {
  return [=](Exchange& exchange, float* values) { return exchange.begin_broadcast({values, count}, type, root); };
}
Begin all_gather(std::size_t count) {
  return [=](Exchange& exchange, float* values) {
    return exchange.begin_all_gather({values, count}, {values + count, kMembers * count}, ElementType::f32);
  };
}
Begin reduce_scatter(std::size_t count, AllReduceOptions options = {}) {
  return [=](Exchange& exchange, float* values) {
    return exchange.begin_reduce_scatter({values, kMembers * count}, {values + kMembers * count, count}, options);
  };
}
Begin barrier(std::string label = {}) {
  return [label = std::move(label)](Exchange& exchange, float*) { return exchange.begin_barrier(label); };
}

struct Difference {
  std::string name;
  Begin most, odd;
  std::vector<std::string> shown;  // words of both sides that the message must have
  bool threads_only = false;
};
std::ostream& operator<<(std::ostream& out, const Difference& difference) { return out << difference.name; }

const std::vector<Difference>& differences() {
  static const std::vector<Difference> all = {
      {"kind", all_reduce({1'000}), broadcast(1'000, 0), {"all_reduce", "broadcast"}},
      {"kind_long", all_reduce({150'000}), all_gather(150'000), {"all_reduce", "all_gather"}},
      {"kind_without_data", reduce_scatter(100), barrier(), {"reduce_scatter", "barrier"}},
      {"count", all_reduce({1'024}), all_reduce({1'000}), {"1024", "1000"}},
      {"count_long", all_reduce({150'001}), all_reduce({150'000}), {"150001", "150000"}},
      {"count_across_ways", all_reduce({100'000}), all_reduce({10}), {"100000", "10"}},
      {"count_zero", all_reduce({100}), all_reduce({0}), {"100", "0"}},
      {"count_of_blocks", all_gather(5'000), all_gather(6'000), {"5000", "6000"}},
      {"type", all_reduce({3'000}), all_reduce({3'000}, {.type = ElementType::i32}), {"f32", "i32"}},
      {"type_long", broadcast(100'000, 1), broadcast(100'000, 1, ElementType::bf16), {"f32", "bf16"}},
      {"reduction", all_reduce({3'000}), all_reduce({3'000}, {.reduction = Reduction::maximum}), {"sum", "maximum"}},
      {"reduction_long",
       reduce_scatter(50'000),
       reduce_scatter(50'000, {.reduction = Reduction::average}),
       {"sum", "average"}},
      {"root", broadcast(1'000, 0), broadcast(1'000, 2), {"0", "2"}},
      {"root_long", broadcast(200'000, 0), broadcast(200'000, 1), {"0", "1"}},
      {"parts", all_reduce({1'000, 2'000}), all_reduce({2'000, 1'000}), {"parts"}},
      {"parts_long", all_reduce({100'000, 50'000}), all_reduce({150'000}), {"parts"}},
      {"wire",
       all_reduce({3'000}, {.wire = WireFormat::bf16}),
       all_reduce({3'000}),
       {"rank 0: all_reduce of 3000 f32, sum, in bf16; rank 1: all_reduce of 3000 f32, sum"}},
      {"wire_long",
       reduce_scatter(50'000, {.reduction = Reduction::average, .wire = WireFormat::f16}),
       reduce_scatter(50'000, {.reduction = Reduction::average, .wire = WireFormat::i8}),
       {"rank 0: reduce_scatter of 50000 f32, average, in f16; rank 1: reduce_scatter of 50000 f32, average, in i8"}},
      {"label",
       barrier("gather of 12 f32 to rank 1"),
       barrier("scatter of 12 f32 from rank 0"),
       {"rank 0: gather of 12 f32 to rank 1; rank 1: scatter of 12 f32 from rank 0"}},
      {"label_and_none", barrier("gather of 12 f32"), barrier(), {"rank 0: gather of 12 f32; rank 1: barrier"}},
      {"label_and_operation",
       all_reduce({12}),
       barrier("gather of 12 f32 to rank 1"),
       {"rank 0: all_reduce of 12 f32, sum; rank 1: gather of 12 f32 to rank 1"}},
      {"label_and_long_operation",
       barrier("gather of 12 f32 to rank 1"),
       all_reduce({150'000}),
       {"rank 0: gather of 12 f32 to rank 1; rank 1: all_reduce of 150000 f32, sum"}},
      {"label_last_character",
       barrier(std::string(46, 'x') + "a"),
       barrier(std::string(46, 'x') + "b"),
       {"rank 0: " + std::string(46, 'x') + "a; rank 1: " + std::string(46, 'x') + "b"}},
      {"consumer", all_reduce({150'000}), all_reduce({150'000}, {.consumer = &one_consumer}), {"consumer"}, true},
      {"consumers",
       all_reduce({150'000}, {.consumer = &other_consumer}),
       all_reduce({150'000}, {.consumer = &one_consumer}),
       {"consumer"},
       true},
  };
  return all;
}

// Rank kOdd calls the one operation, all others the other, after a good one each.
void run_difference(const Difference& difference, As as, Way way) {
  SCOPED_TRACE(std::string(name_of(way)));
  Group group({.members = kMembers});
  const auto outcomes = run_members(kMembers, as, [&](Member& me) {
    Exchange exchange = group.join(me.rank());
    exchange.barrier();
    Buffer buffer(exchange, way, kCount, 3.0F);
    const Begin& begin = me.rank() == kOdd ? difference.odd : difference.most;
    Work work = begin(exchange, buffer.values().data());  // asynchronous operations raise where they are waited for
    try {
      work.wait();
    } catch (const MismatchError&) {
      require(buffer.all(3.0F), "memory written by an operation that was refused");
      bool refused = false;
      try {
        exchange.barrier();
      } catch (const MismatchError&) {
        refused = true;
      }
      require(refused, "an aborted group that took more work");
      throw;
    }
  });
  for (const Outcome& outcome : outcomes) {
    SCOPED_TRACE(describe(outcome));
    EXPECT_EQ(outcome.kind, "MismatchError");
    EXPECT_EQ(outcome.message, outcomes[0].message);
    EXPECT_THAT(outcome.message, HasSubstr("rank 1"));
    EXPECT_THAT(outcome.message, AnyOf(HasSubstr("rank 0"), HasSubstr("rank 2")));
    for (const std::string& word : difference.shown) {
      EXPECT_THAT(outcome.message, HasSubstr(word));
    }
  }
}

class Mismatch : public ::testing::TestWithParam<Difference> {};
INSTANTIATE_TEST_SUITE_P(Exchange, Mismatch, ::testing::ValuesIn(differences()),
                         [](const auto& test) { return test.param.name; });

TEST_P(Mismatch, RaisesOnEveryThreadWithBothSides) {
  run_difference(GetParam(), As::threads, Way::staged);
  run_difference(GetParam(), As::threads, Way::in_place);
}

TEST_P(Mismatch, RaisesOnEveryProcessWithBothSides) {
  if (GetParam().threads_only) {
    GTEST_SKIP() << "consumers are for threads";
  }
  run_difference(GetParam(), As::processes, Way::staged);
  run_difference(GetParam(), As::processes, Way::in_place);
}

TEST(Exchange, MismatchAmongOperationsInFlightLeavesTheFinishedOnesAlone) {
  for (const As as : {As::threads, As::processes}) {
    Group group({.members = kMembers});
    const auto outcomes = run_members(kMembers, as, [&](Member& me) {
      Exchange exchange = group.join(me.rank());
      std::vector<float> good(100'000, 1.0F);
      std::vector<float> bad(100'000, 2.0F);
      const Part good_part{good.data(), good.size()};
      const Part bad_part{bad.data(), bad.size() - static_cast<std::size_t>(me.rank())};
      Work first = exchange.begin_all_reduce({&good_part, 1}, {});
      first.wait();
      Work second = exchange.begin_all_reduce({&bad_part, 1}, {});
      int raised = 0;
      try {
        exchange.begin_all_reduce({&good_part, 1}, {}).wait();  // others may have seen the difference by now
      } catch (const MismatchError&) {
        ++raised;
      }
      try {
        second.wait();
      } catch (const MismatchError&) {
        ++raised;
      }
      require(raised == 2, "an operation that a mismatch should have ended");
      require(std::ranges::all_of(bad, [](float x) { return x == 2.0F; }), "memory that was written");
      // Waiting again for what had succeeded is still a success.
      require(!first.valid() || first.test(), "a finished operation that became unfinished");
    });
    for (const Outcome& outcome : outcomes) {
      EXPECT_TRUE(outcome.done) << describe(outcome);
    }
  }
}

TEST(Exchange, LabelsThatAreAlikeUpToTheirCutAgree) {
  for (const As as : {As::threads, As::processes}) {
    Group group({.members = kMembers});
    const auto outcomes = run_members(kMembers, as, [&](Member& me) {
      Exchange exchange = group.join(me.rank());
      exchange.begin_barrier("gather of 12 f32 to rank 1").wait();
      exchange.begin_barrier(std::string(47, 'x') + std::string(static_cast<std::size_t>(me.rank()), 'y')).wait();
      // Numbers 66 to 70 lie where 2 to 6 lay; some of those that had a label have none now, and some do not end alike.
      for (int i = 3; i <= 65; ++i) exchange.begin_barrier("step " + std::to_string(i)).wait();
      exchange.barrier();
      for (int i = 67; i <= 70; ++i) exchange.begin_barrier("s").wait();
      me.give(std::to_string(exchange.counters().operations));
    });
    for (const Outcome& outcome : outcomes) {
      EXPECT_TRUE(outcome.done) << describe(outcome);
      EXPECT_EQ(outcome.result, "70");
    }
  }
}

TEST(Exchange, ReducerCoreThatTheProcessMayNotUseIsNamed) {
  const std::vector<int> usable = numbers_of_usable_cores();
  for (const int core : {-1, 1'024}) {
    const std::string message =
        fmt::format("group option reducer_cores has core {}, which this process may not use; it may use {}", core,
                    fmt::join(usable, ", "));
    const GroupOptions options{.reducers = 1, .reducer_cores = {usable.at(0), core}};
    EXPECT_EQ(tests::error_of<RequestError>([&] { const Group group(options); }), message);
    const tests::TemporaryDirectory meeting;
    FileRendezvous rendezvous(meeting.path());
    EXPECT_EQ(tests::error_of<RequestError>([&] { Exchange::connect(0, options, rendezvous); }), message);
  }
}

TEST(Exchange, OptionsOutOfRangeAreNamed) {
  const std::vector<std::pair<std::string, GroupOptions>> wrong = {
      {"members", {.members = 0}},
      {"members", {.members = 65}},
      {"piece", {.piece = 0}},
      {"piece", {.piece = 100}},
      {"piece", {.piece = (std::size_t{16} << 20) + 64}},
      {"reducers", {.reducers = -1}},
      {"window", {.window = 0}},
      {"window", {.window = 65}},
      {"time_limit", {.time_limit = 0ms}},
      {"time_limit", {.time_limit = -1ms}},
  };
  for (const auto& [name, options] : wrong) {
    try {
      const Group group(options);
      ADD_FAILURE() << "a group with a wrong " << name << " was made";
    } catch (const RequestError& error) {
      std::string message = error.what();
      std::ranges::replace(message, ' ', '_');  // "time limit" is as good as "time_limit"
      EXPECT_THAT(message, HasSubstr(name));
    }
  }
}

TEST(Exchange, RequestsThatCannotBeMetBeginNothing) {
  Group group({.members = 1});
  Exchange exchange = group.join(0);
  std::vector<float> values(8, 1.0F);
  const Part part{values.data(), values.size()};
  EXPECT_THROW(exchange.begin_broadcast(part, ElementType::f32, 1), RequestError);
  EXPECT_THROW(exchange.begin_broadcast(part, ElementType::f32, -1), RequestError);
  EXPECT_THROW(exchange.begin_all_reduce({&part, 1}, {.reduction = Reduction::bitwise_and}), RequestError);
  EXPECT_THROW(exchange.begin_all_reduce({&part, 1}, {.type = ElementType::boolean, .reduction = Reduction::average}),
               RequestError);
  EXPECT_THROW(exchange.begin_all_gather(part, {values.data(), 4}, ElementType::f32), RequestError);
  EXPECT_THROW(exchange.begin_reduce_scatter(part, {values.data(), 4}, {}), RequestError);
  const Part nothing{nullptr, 8};
  EXPECT_THROW(exchange.begin_all_reduce({&nothing, 1}, {}), RequestError);
  Ignore consumer;
  EXPECT_THROW(exchange.begin_all_reduce({&part, 1}, {.reduction = Reduction::maximum, .consumer = &consumer}),
               RequestError);
  exchange.all_reduce(std::span(values));
  EXPECT_EQ(values, std::vector<float>(8, 1.0F));
}

TEST(Exchange, RankTakenTwiceOrOutOfRangeIsRefusedAndTheGroupGoesOn) {
  Group group({.members = 2});
  EXPECT_THROW(group.join(2), RequestError);
  EXPECT_THROW(group.join(-1), RequestError);
  Members members(2, As::threads, [&](Member& me) {
    Exchange exchange = group.join(me.rank());
    me.say("joined");
    me.hear();
    Buffer buffer(exchange, Way::small, 10, 1.0F);
    exchange.all_reduce(buffer.part());
    require(buffer.all(2.0F), "a wrong sum");
  });
  EXPECT_EQ(members.hear(0), "joined");
  EXPECT_EQ(members.hear(1), "joined");
  for (int rank : {0, 1}) {
    EXPECT_THROW(group.join(rank), RequestError);
    members.tell(rank, "go on");
  }
  for (const Outcome& outcome : members.wait_all()) {
    EXPECT_TRUE(outcome.done) << describe(outcome);
  }
}

TEST(Exchange, JoinNamesThoseWhoNeverCame) {
  for (const As as : {As::threads, As::processes}) {
    Group group({.members = 4, .time_limit = 200ms});
    const auto outcomes = run_members(2, as, [&](Member& me) { group.join(2 * me.rank()); });
    for (const Outcome& outcome : outcomes) {
      EXPECT_EQ(outcome.kind, "TimeoutError") << describe(outcome);
      EXPECT_THAT(outcome.message, HasSubstr("1"));
      EXPECT_THAT(outcome.message, HasSubstr("3"));
    }
  }
}

TEST(Connect, OptionsThatDifferAreNamedWithBothValues) {
  const std::vector<std::pair<std::vector<std::string>, GroupOptions>> odd = {
      {{"members", "2", "3"}, {.members = 3}},
      {{"piece", "131072", "65536"}, {.members = 2, .piece = 65'536}},
      {{"window", "4", "8"}, {.members = 2, .window = 8}},
  };
  for (std::size_t i = 0; i < odd.size(); ++i) {
    const tests::TemporaryDirectory meeting;
    const auto outcomes = run_members(2, As::processes, [&](Member& me) {
      FileRendezvous rendezvous(meeting.path());
      const GroupOptions options = me.rank() == 1 ? odd[i].second : GroupOptions{.members = 2};
      Exchange::connect(me.rank(), options, rendezvous);
    });
    for (const Outcome& outcome : outcomes) {
      EXPECT_EQ(outcome.kind, "MismatchError") << describe(outcome);
      for (const std::string& word : odd[i].first) {
        EXPECT_THAT(outcome.message, HasSubstr(word));
      }
    }
  }
}

TEST(Connect, WhoNeverComesIsNamed) {
  for (const int missing : {0, 1, 2}) {
    const tests::TemporaryDirectory meeting;
    const auto outcomes = run_members(kMembers, As::processes, [&](Member& me) {
      if (me.rank() != missing) {
        FileRendezvous rendezvous(meeting.path());
        Exchange::connect(me.rank(), {.members = kMembers, .time_limit = 1s}, rendezvous);
      }
    });
    for (const Outcome& outcome : outcomes) {
      if (outcome.rank != missing) {
        EXPECT_EQ(outcome.kind, "TimeoutError") << describe(outcome);
        EXPECT_THAT(outcome.message, HasSubstr("rank " + std::to_string(missing)));
      }
    }
  }
}

TEST(Connect, RankTakenTwiceGivesNobodyAGroup) {
  const tests::TemporaryDirectory meeting;
  const auto outcomes = run_members(kMembers, As::processes, [&](Member& me) {
    FileRendezvous rendezvous(meeting.path());
    Exchange::connect(std::min(me.rank(), 1), {.members = kMembers, .time_limit = 2s}, rendezvous);
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_FALSE(outcome.done) << describe(outcome);
    EXPECT_NE(outcome.kind, "overdue");
    EXPECT_NE(outcome.message, "");
  }
}

TEST(Connect, RankOutOfRangeIsRefused) {
  const tests::TemporaryDirectory meeting;
  FileRendezvous rendezvous(meeting.path());
  EXPECT_THROW(Exchange::connect(2, {.members = 2}, rendezvous), RequestError);
  EXPECT_THROW(Exchange::connect(-1, {.members = 2}, rendezvous), RequestError);
  EXPECT_THROW(Exchange::connect(0, {.members = 65}, rendezvous), RequestError);
}

}  // namespace
}  // namespace sumpter
