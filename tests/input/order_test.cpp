#include "input/order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "input/random.h"
#include "sumpter/error.h"

namespace sumpter {
namespace {

std::vector<std::size_t> iota(std::size_t rows) {
  std::vector<std::size_t> all(rows);
  std::iota(all.begin(), all.end(), std::size_t{0});
  return all;
}

TEST(Random, IsSplitMix64) {
  Random random(1234567);  // the generator's published test vector
  for (const std::uint64_t expected : {6457827717110365317U, 3203168211198807973U, 9817491932198370423U}) {
    EXPECT_EQ(random.next(), expected);
  }
}

TEST(Random, StaysBelowItsBoundAndReachesEveryNumber) {
  Random random(1);
  std::vector<int> seen(7);
  for (int draw = 0; draw < 7000; ++draw) ++seen.at(random.below(7));
  for (const int times : seen) EXPECT_NEAR(times, 1000, 150);  // five standard deviations
  EXPECT_EQ(random.below(1), 0U);
  for (int draw = 0; draw < 100; ++draw) EXPECT_LE(random.below((1ULL << 63) + 1), 1ULL << 63);
}

TEST(BatchOrder, UsesEveryRowOncePerEpoch) {
  for (const std::size_t rows : {1, 3, 9, 64, 1000}) {
    for (const std::size_t batch_size : {1, 4, 7, 64, 5000}) {
      const BatchOrder order({.rows = rows, .batch_size = batch_size, .seed = 5});
      for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
        std::vector<std::size_t> used;
        for (std::size_t batch = 0; batch < order.batches_per_epoch(); ++batch) {
          const Position position = order.position(epoch * order.batches_per_epoch() + batch);
          EXPECT_EQ(position.epoch, epoch);
          EXPECT_EQ(position.batch, batch);
          const auto permutation = order.permutation(epoch);
          for (std::size_t row = 0; row < position.range.rows; ++row) {
            used.push_back((*permutation)[position.range.begin + row]);
          }
        }
        EXPECT_THAT(used, testing::UnorderedElementsAreArray(iota(rows)));
      }
    }
  }
}

TEST(BatchOrder, LeavesTheRemainderToTheLastBatch) {
  const BatchOrder order({.rows = 11, .batch_size = 4});
  ASSERT_EQ(order.batches_per_epoch(), 3U);
  EXPECT_EQ(order.position(0).range, (RowRange{0, 4}));
  EXPECT_EQ(order.position(2).range, (RowRange{8, 3}));
  EXPECT_EQ(order.position(3).range, (RowRange{0, 4}));
  EXPECT_EQ(order.position(3).epoch, 1U);
  EXPECT_EQ(order.position(3'000'000'000'002).epoch, 1'000'000'000'000U);
  EXPECT_EQ(order.position(3'000'000'000'002).range, (RowRange{8, 3}));
}

TEST(BatchOrder, TakesABatchSizeLargerThanTheDataSet) {
  const BatchOrder order({.rows = 3, .batch_size = SIZE_MAX});
  EXPECT_EQ(order.batches_per_epoch(), 1U);
  EXPECT_EQ(order.position(7).range, (RowRange{0, 3}));
}

TEST(BatchOrder, DependsOnSeedAndEpochAlone) {
  const BatchOrder order({.rows = 1000, .batch_size = 10, .seed = 1});
  const BatchOrder other_batches({.rows = 1000, .batch_size = 32, .seed = 1});
  const BatchOrder other_seed({.rows = 1000, .batch_size = 10, .seed = 2});
  const auto later = other_batches.permutation(9);  // made before those of earlier epochs
  EXPECT_EQ(*order.permutation(9), *later);
  EXPECT_EQ(*order.permutation(0), *other_batches.permutation(0));
  EXPECT_NE(*order.permutation(0), *order.permutation(1));
  EXPECT_NE(*order.permutation(0), *order.permutation(2));
  EXPECT_NE(*order.permutation(0), *other_seed.permutation(0));
  EXPECT_NE(*order.permutation(0), iota(1000));
}

// Runs of this version continue runs of any other: the order is part of what a seed means.
TEST(BatchOrder, IsTheSameInEveryVersion) {
  const BatchOrder order({.rows = 10, .batch_size = 4, .seed = 7});
  EXPECT_THAT(*order.permutation(0), testing::ElementsAre(6, 0, 7, 8, 4, 5, 9, 3, 2, 1));
}

TEST(BatchOrder, CanLeaveTheOrderAlone) {
  const BatchOrder order({.rows = 100, .batch_size = 8, .seed = 1, .shuffle = false});
  EXPECT_EQ(*order.permutation(0), iota(100));
  EXPECT_EQ(*order.permutation(5), iota(100));
}

TEST(BatchOrder, ServesSeveralThreads) {
  const BatchOrder order({.rows = 200, .batch_size = 8, .seed = 3});
  const BatchOrder reference({.rows = 200, .batch_size = 8, .seed = 3});
  std::vector<std::vector<std::size_t>> expected;
  for (std::uint64_t epoch = 0; epoch < 5; ++epoch) expected.push_back(*reference.permutation(epoch));
  std::vector<std::jthread> threads;
  threads.reserve(4);
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      for (std::uint64_t epoch = 0; epoch < 5; ++epoch) EXPECT_EQ(*order.permutation(epoch), expected[epoch]);
    });
  }
}

TEST(BatchOrder, RefusesNoRowsAndNoBatch) {
  EXPECT_THROW(BatchOrder({.rows = 0, .batch_size = 4}), RequestError);
  EXPECT_THROW(BatchOrder({.rows = 4, .batch_size = 0}), RequestError);
}

}  // namespace
}  // namespace sumpter
