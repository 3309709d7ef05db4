// What the protocol does rather than what it computes: bytes moved as docs/routes.md says, work shared by reducers,
// consumers, members without rows, memory that comes and goes, members far ahead.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <numeric>
#include <ostream>
#include <span>
#include <thread>
#include <vector>

#include "sumpter/exchange.h"
#include "tests/exchange/buffers.h"
#include "tests/support/members.h"

namespace sumpter {
namespace {

using tests::As;
using tests::Buffer;
using tests::Member;
using tests::require;
using tests::run_members;
using tests::Way;

constexpr int kMembers = 3;

// What the members of one operation did, together.
struct Totals {
  std::uint64_t copied_in = 0, copied_out = 0, read = 0;
  bool operator==(const Totals&) const = default;
};
void PrintTo(const Totals& totals, std::ostream* out) {
  *out << "copied in " << totals.copied_in << ", out " << totals.copied_out << ", read " << totals.read;
}

using Operate = std::function<void(Exchange&, Way, std::size_t)>;

Totals totals_of(As as, Way way, std::size_t count, const Operate& operate) {
  Group group({.members = kMembers, .piece = 4'096, .reducers = 1});
  const auto outcomes = run_members(kMembers, as, [&](Member& me) {
    Exchange exchange = group.join(me.rank());
    operate(exchange, way, count);
    exchange.barrier();  // nobody works on the operation any more
    const ExchangeCounters counters = exchange.counters();
    std::uint64_t read = counters.own.bytes;
    // The reducers of threads are the group's: one member counts them.
    if (as == As::processes || me.rank() == 0) {
      for (const WorkerCounters& reducer : counters.reducers) read += reducer.bytes;
    }
    me.give(tests::bytes_of(std::vector<std::uint64_t>{counters.bytes_copied_in, counters.bytes_copied_out, read}));
  });
  Totals totals;
  for (const auto& outcome : outcomes) {
    EXPECT_TRUE(outcome.done) << describe(outcome);
    const auto values = tests::values_of<std::uint64_t>(outcome.result);
    if (values.size() != 3) continue;
    totals.copied_in += values[0];
    totals.copied_out += values[1];
    totals.read += values[2];
  }
  return totals;
}

void all_reduce(Exchange& exchange, Way way, std::size_t count) {
  Buffer buffer(exchange, way, count, 1.0F);
  exchange.all_reduce(buffer.part());
}
void reduce_scatter(Exchange& exchange, Way way, std::size_t count) {
  Buffer input(exchange, way, kMembers * count, 1.0F), output(exchange, way, count);
  exchange.begin_reduce_scatter(input.part(), output.part(), {}).wait();
}
void all_gather(Exchange& exchange, Way way, std::size_t count) {
  Buffer input(exchange, way, count, 1.0F), output(exchange, way, kMembers * count);
  exchange.begin_all_gather(input.part(), output.part(), ElementType::f32).wait();
}
void all_gather_own_block(Exchange& exchange, Way way, std::size_t count) {
  Buffer output(exchange, way, kMembers * count, 1.0F);
  const auto rank = static_cast<std::size_t>(exchange.rank());
  exchange.begin_all_gather({output.values().data() + rank * count, count}, output.part(), ElementType::f32).wait();
}
void broadcast(Exchange& exchange, Way way, std::size_t count) {
  Buffer buffer(exchange, way, count, 1.0F);
  exchange.broadcast(buffer.part(), ElementType::f32, 1);
}
void barrier(Exchange& exchange, Way, std::size_t) { exchange.barrier(); }

TEST(Bytes, OfSmallOperationsAreAsDocumented) {
  constexpr std::uint64_t n = kMembers, count = 100, s = count * 4;
  for (const As as : {As::threads, As::processes}) {
    SCOPED_TRACE(name_of(as));
    const auto totals = [&](const Operate& operate) { return totals_of(as, Way::small, count, operate); };
    EXPECT_EQ(totals(all_reduce), (Totals{n * s, 0, n * n * s}));
    EXPECT_EQ(totals(reduce_scatter), (Totals{n * n * s, 0, n * n * s}));
    EXPECT_EQ(totals(all_gather), (Totals{n * s, n * n * s, 0}));
    EXPECT_EQ(totals(broadcast), (Totals{s, (n - 1) * s, 0}));
    EXPECT_EQ(totals(barrier), Totals{});
  }
}

TEST(Bytes, OfOperationsInPlaceAreAsDocumented) {
  constexpr std::uint64_t n = kMembers, count = 10'007, s = count * 4;
  for (const As as : {As::threads, As::processes}) {
    SCOPED_TRACE(name_of(as));
    const auto totals = [&](const Operate& operate) { return totals_of(as, Way::in_place, count, operate); };
    EXPECT_EQ(totals(all_reduce), (Totals{0, 0, n * s}));
    EXPECT_EQ(totals(reduce_scatter), (Totals{0, 0, n * n * s}));
    EXPECT_EQ(totals(all_gather), (Totals{0, 0, n * n * s}));
    EXPECT_EQ(totals(all_gather_own_block), (Totals{0, 0, n * (n - 1) * s}));
    EXPECT_EQ(totals(broadcast), (Totals{0, 0, (n - 1) * s}));
  }
}

TEST(Bytes, OfStagedOperationsAreAsDocumented) {
  constexpr std::uint64_t n = kMembers, count = 10'007, s = count * 4;
  const auto totals = [&](const Operate& operate) { return totals_of(As::processes, Way::staged, count, operate); };
  EXPECT_EQ(totals(all_reduce), (Totals{(n - 1) * s, (n - 1) * s, n * s}));
  EXPECT_EQ(totals(reduce_scatter), (Totals{n * (n - 1) * s, 0, n * n * s}));
  EXPECT_EQ(totals(all_gather), (Totals{n * s, n * (n - 1) * s, 0}));
  EXPECT_EQ(totals(all_gather_own_block), (Totals{n * s, n * (n - 1) * s, 0}));
  EXPECT_EQ(totals(broadcast), (Totals{s, (n - 1) * s, 0}));
}

TEST(Bytes, OfMembersWithoutRowsAreNotMoved) {
  for (const Way way : {Way::small, Way::in_place, Way::staged}) {
    const std::uint64_t count = way == Way::small ? 1'007 : 10'007, s = count * 4;
    const auto mean = [](Exchange& exchange, Way where, std::size_t elements) {
      Buffer buffer(exchange, where, elements, exchange.rank() == 1 ? 100.0F : 2.0F);
      exchange.all_reduce(buffer.part(),
                          {.reduction = Reduction::weighted_mean, .rows = exchange.rank() == 1 ? 0U : 5U});
      require(buffer.all(2.0F), "a mean with a member that has no rows");
    };
    const Totals totals = totals_of(As::processes, way, count, mean);
    // A small operation is summed by each member for itself.
    EXPECT_EQ(totals.read, (kMembers - 1) * s * (way == Way::small ? kMembers : 1));
    EXPECT_LE(totals.copied_in, (kMembers - 1) * s);
  }
}

TEST(Rows, MembersWithoutThemMayPassNullAndAllWithoutThemGetZero) {
  for (const As as : {As::threads, As::processes}) {
    for (const Way way : {Way::in_place, Way::staged, Way::small}) {
      Group group({.members = kMembers, .piece = 4'096});
      const auto outcomes = run_members(kMembers, as, [&](Member& me) {
        Exchange exchange = group.join(me.rank());
        const std::size_t count = way == Way::small ? 50 : 20'000;
        Buffer buffer(exchange, way, count, 4.0F);
        const bool idle = me.rank() == 2;
        const Part part{idle ? nullptr : buffer.values().data(), count};
        exchange.all_reduce(part, {.reduction = Reduction::weighted_mean, .rows = idle ? 0U : 1U});
        require(buffer.all(4.0F), "a mean over two of three members");
        exchange.all_reduce(buffer.part(), {.reduction = Reduction::weighted_mean, .rows = 0});
        require(buffer.all(0.0F), "a mean of no rows");
      });
      for (const auto& outcome : outcomes) EXPECT_TRUE(outcome.done) << describe(outcome);
    }
  }
}

// Keeps what it is given and counts how often each element came.
class Collector : public SumConsumer {
 public:
  explicit Collector(const std::vector<std::size_t>& counts) {
    for (const std::size_t count : counts) sums_.emplace_back(count, 0.0F), times_.emplace_back(count, 0);
  }
  void consume(std::size_t part, std::size_t begin, std::span<const float> sum) override {
    std::ranges::copy(sum, sums_.at(part).begin() + static_cast<std::ptrdiff_t>(begin));
    for (std::size_t i = 0; i < sum.size(); ++i) ++times_.at(part).at(begin + i);
  }
  const std::vector<std::vector<float>>& sums() const { return sums_; }
  bool once() const {
    return std::ranges::all_of(
        times_, [](const auto& part) { return std::ranges::all_of(part, [](int n) { return n == 1; }); });
  }

 private:
  std::vector<std::vector<float>> sums_;
  std::vector<std::vector<int>> times_;
};

TEST(Consumer, GetsEachElementOfEachPartOnceAndInputsStay) {
  const std::vector<std::size_t> counts = {1, 0, 5'000, 17, 40'000};
  for (const int members : {1, kMembers}) {
    Collector collector(counts);
    Group group({.members = members, .piece = 8'192, .reducers = 2});
    const auto outcomes = run_members(members, As::threads, [&](Member& me) {
      Exchange exchange = group.join(me.rank());
      std::vector<std::vector<float>> arrays;
      std::vector<Part> parts;
      for (const std::size_t count : counts) {
        auto& array = arrays.emplace_back(count);
        std::iota(array.begin(), array.end(), static_cast<float>(me.rank()));
      }
      for (auto& array : arrays) parts.push_back({array.data(), array.size()});
      exchange.begin_all_reduce(parts, {.consumer = &collector}).wait();
      for (const auto& array : arrays) {
        for (std::size_t i = 0; i < array.size(); ++i)
          require(array[i] == static_cast<float>(i + static_cast<std::size_t>(me.rank())), "an input that changed");
      }
    });
    for (const auto& outcome : outcomes) EXPECT_TRUE(outcome.done) << describe(outcome);
    EXPECT_TRUE(collector.once());
    for (const auto& part : collector.sums()) {
      for (std::size_t i = 0; i < part.size(); ++i) {
        ASSERT_EQ(part[i], static_cast<float>(members * static_cast<int>(i) + members * (members - 1) / 2));
      }
    }
  }
}

TEST(Parts, OfOneOperationMayLieAnywhere) {
  for (const As as : {As::threads, As::processes}) {
    Group group({.members = kMembers, .piece = 4'096});
    const auto outcomes = run_members(kMembers, as, [&](Member& me) {
      Exchange exchange = group.join(me.rank());
      Buffer first(exchange, Way::in_place, 3, 1.0F), second(exchange, Way::staged, 30'000, 2.0F),
          third(exchange, Way::staged, 0);
      Buffer fourth(exchange, Way::staged, 1'001, 3.0F);
      const Part parts[] = {first.part(), second.part(), third.part(), fourth.part()};
      exchange.begin_all_reduce(parts, {}).wait();
      require(first.all(3.0F) && second.all(6.0F) && fourth.all(9.0F), "a wrong sum");
      exchange.begin_all_reduce({}, {}).wait();
    });
    for (const auto& outcome : outcomes) EXPECT_TRUE(outcome.done) << describe(outcome);
  }
}

std::size_t entries(const char* directory) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(directory), {}));
}
// Of files of this name; of anything where it is empty.
std::size_t mappings(const std::string& name = {}) {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find(name) != std::string::npos;
  return count;
}

TEST(Memory, ThatComesAndGoesLeavesNothingBehind) {
  Group group({.members = 2, .piece = 4'096});
  const auto outcomes = run_members(2, As::processes, [&](Member& me) {
    Exchange exchange = group.join(me.rank());
    const auto cycle = [&](std::size_t count) {
      Buffer buffer(exchange, Way::in_place, count, 1.0F);
      require(exchange.readable_by_all(buffer.values().data(), count * 4), "arena memory that cannot be read by all");
      exchange.all_reduce(buffer.part());
      require(buffer.all(2.0F), "a wrong sum");
    };
    for (std::size_t i = 0; i < 20; ++i) cycle(5'000 + 1'000 * i);
    const std::size_t files = entries("/proc/self/fd"), arena = mappings("sumpter-arena");
    [[maybe_unused]] const std::size_t maps = mappings();
    for (std::size_t i = 0; i < 2'000; ++i) cycle(5'000 + 10 * i);
    require(entries("/proc/self/fd") <= files, "descriptors that grow");
    // Another's memory stays mapped until its entry is used again: a few, where a leak would be thousands.
    require(mappings("sumpter-arena") <= arena + 8, "mappings of the arena that grow");
#if !defined(__SANITIZE_THREAD__)  // whose shadow of this memory is mapped too, and comes in pieces
    require(mappings() <= maps + 8, "mappings that grow");
#endif
  });
  for (const auto& outcome : outcomes) EXPECT_TRUE(outcome.done) << describe(outcome);
}

TEST(Memory, IsZeroedAlignedAndRefusedWhenThereIsNotEnough) {
  Group group({.members = 1});
  Exchange exchange = group.join(0);
  for (int i = 0; i < 3; ++i) {
    const SharedMemory memory = exchange.allocate(10'000);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.data()) % 4'096, 0U);
    EXPECT_EQ(memory.bytes(), 10'000U);
    auto* const bytes = static_cast<char*>(memory.data());
    EXPECT_TRUE(std::all_of(bytes, bytes + 10'000, [](char byte) { return byte == 0; }));
    std::fill_n(bytes, 10'000, 'x');
  }
  for (const unsigned bits : {46U, 62U, 63U}) {
    EXPECT_THROW(exchange.allocate(std::size_t{1} << bits), SystemError);
    EXPECT_NE(exchange.allocate(1).data(), nullptr) << "after 2^" << bits << " bytes were refused";
  }
  EXPECT_EQ(exchange.allocate(0).data(), nullptr);
  std::vector<SharedMemory> all;
  EXPECT_THROW(
      {
        for (int i = 0; i < 1'100; ++i) all.push_back(exchange.allocate(1));
      },
      SystemError);
  all.clear();
  EXPECT_NE(exchange.allocate(1).data(), nullptr);
}

TEST(Memory, OutlivesTheExchangeThatHandedItOut) {
  SharedMemory memory;
  {
    Group group({.members = 1});
    memory = group.join(0).allocate(100);
  }
  static_cast<char*>(memory.data())[99] = 1;
}

TEST(Groups, ManyInOneProcessWorkIndependently) {
  std::vector<Group> groups;
  for (int i = 0; i < 20; ++i) groups.emplace_back(GroupOptions{.members = 2, .piece = 4'096});
  const auto outcomes = run_members(2, As::threads, [&](Member& me) {
    std::vector<Exchange> exchanges;
    for (Group& group : groups) exchanges.push_back(group.join(me.rank()));
    std::vector<std::vector<float>> arrays(groups.size(), std::vector<float>(10'000, 1.0F));
    std::vector<Work> works;
    for (std::size_t i = 0; i < groups.size(); ++i) {
      // Each rank begins them in an order of its own.
      const std::size_t which = me.rank() == 0 ? i : groups.size() - 1 - i;
      const Part part{arrays[which].data(), arrays[which].size()};
      works.push_back(exchanges[which].begin_all_reduce({&part, 1}, {}));
    }
    for (Work& work : works) work.wait();
    for (const auto& array : arrays)
      require(std::ranges::all_of(array, [](float x) { return x == 2.0F; }), "a wrong sum");
  });
  for (const auto& outcome : outcomes) EXPECT_TRUE(outcome.done) << describe(outcome);
}

TEST(Reducers, OfAGroupSumWhatNoMemberIsWaitingFor) {
  constexpr std::size_t kCount = 300'000;
  Group group({.members = 2, .piece = 4'096, .reducers = 3});
  const auto pieces_of_reducers = [&] {
    std::uint64_t pieces = 0;
    for (const WorkerCounters& reducer : group.reducer_counters()) pieces += reducer.pieces;
    return pieces;
  };
  std::uint64_t pieces = 0;
  const auto outcomes = run_members(2, As::threads, [&](Member& me) {
    Exchange exchange = group.join(me.rank());
    std::vector<float> values(kCount, 1.0F);
    const Part part{values.data(), values.size()};
    Work work = exchange.begin_all_reduce({&part, 1}, {});
    // Members look on until the reducers have done every piece: 2.4 MB in pieces of 4096 bytes, in two shares.
    while (pieces_of_reducers() < 293) std::this_thread::yield();
    work.wait();
    require(std::ranges::all_of(values, [](float x) { return x == 2.0F; }), "a wrong sum");
    require(exchange.counters().own.pieces == 0, "pieces by a member that only looked on");
    require(exchange.counters().in_place == 1, "an operation of another way");
  });
  for (const auto& outcome : outcomes) EXPECT_TRUE(outcome.done) << describe(outcome);
  for (const WorkerCounters& reducer : group.reducer_counters()) pieces += reducer.pieces;
  EXPECT_EQ(pieces, 293U);
  EXPECT_EQ(group.reducer_counters().size(), 3U);
}

TEST(Reducers, OfAProcessDriveItsStagedOperations) {
  Group group({.members = 2, .piece = 4'096, .reducers = 1});
  const auto outcomes = run_members(2, As::processes, [&](Member& me) {
    Exchange exchange = group.join(me.rank());
    Buffer buffer(exchange, Way::staged, 100'000, 1.0F);
    const Part part = buffer.part();
    Work work = exchange.begin_all_reduce({&part, 1}, {});
    while (exchange.counters().operations == 0) std::this_thread::yield();
    work.wait();
    require(buffer.all(2.0F), "a wrong sum");
    require(exchange.counters().own.pieces == 0 && exchange.counters().reducers.at(0).pieces > 0,
            "a reducer without work");
  });
  for (const auto& outcome : outcomes) EXPECT_TRUE(outcome.done) << describe(outcome);
}

TEST(Exchange, MemberFarAheadWaitsForRoomAndNothingIsLost) {
  for (const As as : {As::threads, As::processes}) {
    Group group({.members = 2});
    const auto outcomes = run_members(2, as, [&](Member& me) {
      Exchange exchange = group.join(me.rank());
      std::vector<std::array<float, 4>> values(500);
      std::vector<Work> works;
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i].fill(static_cast<float>(i));
        const Part part{values[i].data(), 4};
        if (me.rank() == 0) {
          works.push_back(exchange.begin_all_reduce({&part, 1}, {}));  // begins all before it waits for any
        } else {
          exchange.begin_all_reduce({&part, 1}, {}).wait();
        }
      }
      for (Work& work : works) work.wait();
      for (std::size_t i = 0; i < values.size(); ++i) {
        for (const float x : values[i]) require(x == 2.0F * static_cast<float>(i), "a wrong sum");
      }
      require(exchange.counters().operations == values.size(), "a wrong count of operations");
    });
    for (const auto& outcome : outcomes) EXPECT_TRUE(outcome.done) << describe(outcome);
  }
}

}  // namespace
}  // namespace sumpter
