// Cases that have bitten users of such systems: a world of one, no elements, halves that overflow, infinities and NaN,
// odd pieces, members that arrive in any order.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "kernels/kernels.h"
#include "sumpter/exchange.h"
#include "tests/exchange/buffers.h"
#include "tests/support/members.h"

namespace sumpter {
namespace {

using tests::As;
using tests::Buffer;
using tests::bytes_of;
using tests::Member;
using tests::Outcome;
using tests::require;
using tests::run_members;
using tests::Way;

class Cases : public ::testing::TestWithParam<As> {};
INSTANTIATE_TEST_SUITE_P(Exchange, Cases, ::testing::Values(As::threads, As::processes),
                         [](const auto& as) { return std::string(tests::name_of(as.param)); });

void expect_done(const std::vector<Outcome>& outcomes) {
  for (const Outcome& outcome : outcomes) {
    EXPECT_TRUE(outcome.done) << describe(outcome);
  }
}

TEST_P(Cases, InAWorldOfOneEveryOperationIsTheIdentity) {
  Group group({.members = 1, .reducers = 1});
  expect_done(run_members(1, GetParam(), [&](Member&) {
    Exchange exchange = group.join(0);
    for (const std::size_t count : {1U, 1'000U, 300'000U}) {
      Buffer buffer(exchange, Way::staged, count, 0.7F);
      for (const Reduction reduction : {Reduction::sum, Reduction::average, Reduction::weighted_mean,
                                        Reduction::minimum, Reduction::maximum, Reduction::product}) {
        exchange.all_reduce(buffer.part(), {.reduction = reduction, .rows = 5});
        require(buffer.all(0.7F), "a value that changed");
      }
      exchange.broadcast(buffer.part(), ElementType::f32, 0);
      Buffer gathered(exchange, Way::staged, count, 0.0F);
      exchange.begin_all_gather(buffer.part(), gathered.part(), ElementType::f32).wait();
      require(gathered.all(0.7F), "an all_gather that is no copy");
      Buffer scattered(exchange, Way::staged, count, 0.0F);
      exchange.begin_reduce_scatter(buffer.part(), scattered.part(), {}).wait();
      require(scattered.all(0.7F), "a reduce_scatter that is no copy");
      exchange.barrier();
    }
  }));
}

TEST_P(Cases, NoElementsAndOneElement) {
  Group group({.members = 3});
  expect_done(run_members(3, GetParam(), [&](Member& me) {
    Exchange exchange = group.join(me.rank());
    const Part nothing;
    for (int round = 0; round < 3; ++round) {
      exchange.all_reduce(nothing);
      exchange.begin_all_reduce({}, {}).wait();
      exchange.broadcast(nothing, ElementType::i64, 2);
      exchange.begin_all_gather(nothing, nothing, ElementType::bf16).wait();
      exchange.begin_reduce_scatter(nothing, nothing, {}).wait();
      Buffer one(exchange, Way::staged, 1, static_cast<float>(me.rank()));
      const Part parts[] = {nothing, one.part(), nothing};
      exchange.begin_all_reduce(parts, {}).wait();
      require(one.all(3.0F), "a wrong sum of one element");
    }
  }));
}

TEST_P(Cases, AverageOfHalvesDoesNotOverflow) {
  const float number = 60'000.0F;
  std::uint16_t half = 0;
  kernels::encode(WireFormat::f16, &number, &half, 1);
  Group group({.members = 4});
  expect_done(run_members(4, GetParam(), [&](Member& me) {
    Exchange exchange = group.join(me.rank());
    for (const std::size_t count : {5U, 200'000U}) {
      std::vector<std::uint16_t> values(count, half);
      exchange.all_reduce({values.data(), count}, {.type = ElementType::f16, .reduction = Reduction::average});
      require(values == std::vector<std::uint16_t>(count, half), "an average of 60000s that is not 60000");
    }
  }));
}

TEST_P(Cases, NaNAndInfinityOfOneRankReachAll) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  Group group({.members = 3, .piece = 4'096});
  expect_done(run_members(3, GetParam(), [&](Member& me) {
    Exchange exchange = group.join(me.rank());
    for (const Reduction reduction : {Reduction::sum, Reduction::average, Reduction::weighted_mean, Reduction::minimum,
                                      Reduction::maximum, Reduction::product}) {
      for (const Way way : {Way::in_place, Way::staged, Way::small}) {
        Buffer buffer(exchange, way, way == Way::small ? 100 : 100'000, 1.0F);
        const std::span<float> values = buffer.values();
        const std::size_t last = values.size() - 1;
        values[1] = me.rank() == 1 ? kNaN : 1.0F;
        values[2] = me.rank() == 2 ? kInfinity : 1.0F;
        values[last] = me.rank() == 0 ? -kInfinity : 1.0F;
        exchange.all_reduce(buffer.part(), {.reduction = reduction});
        const std::string where = std::string(name_of(reduction)) + ", " + name_of(way);
        require(std::isnan(values[1]), "a NaN that was lost: " + where);
        require(values[2] == (reduction == Reduction::minimum ? 1.0F : kInfinity), "a lost infinity: " + where);
        require(values[last] == (reduction == Reduction::maximum ? 1.0F : -kInfinity), "a lost -infinity: " + where);
        require(std::isfinite(values[0]) && std::isfinite(values[3]), "a neighbour that was touched: " + where);
      }
    }
  }));
}

// Numbers whose sum depends on the order of adding.
std::vector<float> inputs_of(int rank, std::size_t count) {
  std::mt19937 random(static_cast<unsigned>(rank) + 77);
  std::vector<float> values(count);
  for (float& value : values) {
    value = std::ldexp(static_cast<float>(random() % 16'777'216) - 8'388'608.0F, static_cast<int>(random() % 12));
  }
  return values;
}
std::vector<float> sum_in_rank_order(int members, std::size_t count) {
  std::vector<float> sum = inputs_of(0, count);
  for (int rank = 1; rank < members; ++rank) {
    const std::vector<float> next = inputs_of(rank, count);
    for (std::size_t i = 0; i < count; ++i) {
      sum[i] += next[i];
    }
  }
  return sum;
}

struct Shape {
  int members;
  std::size_t piece;
  int reducers;
  int window;
};

TEST_P(Cases, SameBitsForEveryPieceWindowReducerAndOrderOfArrival) {
  constexpr std::size_t kCount = 10'007;  // 40,028 bytes: no piece divides it
  const Shape shapes[] = {{3, 64, 0, 1},     {3, 64, 2, 4},        {3, 192, 0, 3},       {3, 4'096, 1, 1},
                          {3, 12'352, 0, 2}, {3, 1U << 20, 2, 64}, {3, 16U << 20, 0, 1}, {4, 4'096, 3, 2},
                          {2, 16'384, 0, 4}, {5, 1'024, 1, 8}};
  for (const Shape& shape : shapes) {
    SCOPED_TRACE("members " + std::to_string(shape.members) + ", piece " + std::to_string(shape.piece));
    const std::vector<float> expected = sum_in_rank_order(shape.members, kCount);
    Group group({.members = shape.members, .piece = shape.piece, .reducers = shape.reducers, .window = shape.window});
    expect_done(run_members(shape.members, GetParam(), [&](Member& me) {
      Exchange exchange = group.join(me.rank());
      const std::vector<float> input = inputs_of(me.rank(), kCount);
      std::mt19937 random(static_cast<unsigned>(me.rank()));
      for (const Way way : {Way::in_place, Way::staged}) {
        for (int round = 0; round < 10; ++round) {
          Buffer buffer(exchange, way, kCount);
          std::ranges::copy(input, buffer.values().begin());
          // Late by chance, so that each member is at some time the first and the last.
          std::this_thread::sleep_for(std::chrono::microseconds(random() % 500));
          exchange.all_reduce(buffer.part());
          require(std::memcmp(buffer.values().data(), expected.data(), kCount * sizeof(float)) == 0,
                  std::string("other bits than rank order gives, ") + name_of(way));
        }
      }
    }));
  }
}

}  // namespace
}  // namespace sumpter
