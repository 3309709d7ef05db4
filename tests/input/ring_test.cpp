#include "input/ring.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <numeric>
#include <thread>

#include "coded_dataset.h"
#include "input/order.h"
#include "sumpter/error.h"

namespace sumpter {
namespace {

// What one replica was given at one step.
struct Given {
  std::uint64_t step = 0, epoch = 0;
  std::size_t batch_in_epoch = 0, all_rows = 0;
  std::vector<CodedImage> images;
  std::vector<std::int64_t> labels;
  bool operator==(const Given&) const = default;
};

Given read_batch(const Batch& batch) {
  Given given{.step = batch.step(),
              .epoch = batch.epoch(),
              .batch_in_epoch = batch.batch_in_epoch(),
              .all_rows = batch.all_rows(),
              .images = std::vector<CodedImage>(batch.rows()),
              .labels = {batch.labels().begin(), batch.labels().end()}};
  EXPECT_EQ(batch.images().size(), batch.rows() * sizeof(CodedImage));
  if (batch.rows() > 0) std::memcpy(given.images.data(), batch.images().data(), batch.images().size());
  return given;
}

// All that a ring gives to its replicas, each of which has a thread.
std::vector<std::vector<Given>> drain(BatchRing& ring, int replicas) {
  std::vector<std::vector<Given>> all(static_cast<std::size_t>(replicas));
  std::vector<std::jthread> threads;
  threads.reserve(static_cast<std::size_t>(replicas));
  for (int rank = 0; rank < replicas; ++rank) {
    threads.emplace_back([&, rank] {
      while (const auto batch = ring.next(rank)) all[static_cast<std::size_t>(rank)].push_back(read_batch(*batch));
    });
  }
  threads.clear();
  return all;
}

// The same from the words of the promise: permutation, cut into batches, split over replicas.
std::vector<std::vector<Given>> expected_batches(std::size_t rows, const RingOptions& options) {
  const BatchOrder order(
      {.rows = rows, .batch_size = options.batch_size, .seed = options.seed, .shuffle = options.shuffle});
  std::vector<std::vector<Given>> all(static_cast<std::size_t>(options.replicas));
  for (std::uint64_t step = options.first_step; step < options.first_step + options.steps; ++step) {
    const Position position = order.position(step);
    const auto permutation = order.permutation(position.epoch);
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      Given given{.step = step,
                  .epoch = position.epoch,
                  .batch_in_epoch = position.batch,
                  .all_rows = position.range.rows,
                  .images = {},
                  .labels = {}};
      const RowRange part = split_rows(position.range.rows, all.size(), rank);
      for (std::size_t row = 0; row < part.rows; ++row) {
        const std::size_t index = (*permutation)[position.range.begin + part.begin + row];
        given.images.push_back({.index = index, .epoch = position.epoch});
        given.labels.push_back(static_cast<std::int64_t>(index % 10));
      }
      all[rank].push_back(std::move(given));
    }
  }
  return all;
}

void expect_promised_rows(std::size_t rows, const RingOptions& options) {
  SCOPED_TRACE(fmt::format("{} rows, batch size {}, {} replicas, preload {}, {} loaders, from step {}", rows,
                           options.batch_size, options.replicas, options.preload, options.loaders, options.first_step));
  BatchRing ring(std::make_shared<CodedDataset>(rows), options);
  EXPECT_EQ(drain(ring, options.replicas), expected_batches(rows, options));
  const RingCounters counters = ring.counters();
  EXPECT_EQ(counters.batches, options.steps);
  EXPECT_EQ(counters.asked, options.steps);
  EXPECT_EQ(counters.bytes, counters.rows * (sizeof(CodedImage) + sizeof(std::int64_t)));
  EXPECT_LE(counters.ready_most, static_cast<std::uint64_t>(options.preload));
  EXPECT_EQ(counters.rows_by_loader.size(), static_cast<std::size_t>(options.preload > 0 ? options.loaders : 0));
}

void wait_until(const std::function<bool()>& holds) {
  while (!holds()) std::this_thread::yield();
}

TEST(BatchRing, GivesTheSameRowsWhateverIsLoadedAhead) {
  for (const int replicas : {1, 2, 3, 4}) {
    for (const int preload : {0, 1, 2, 3, 9}) {
      for (const int loaders : {1, 3}) {
        expect_promised_rows(
            37,
            {.replicas = replicas, .batch_size = 8, .seed = 11, .preload = preload, .loaders = loaders, .steps = 17});
      }
    }
  }
}

TEST(BatchRing, ServesReplicasWithoutRows) {
  for (const int preload : {0, 2}) {
    expect_promised_rows(11, {.replicas = 4, .batch_size = 8, .preload = preload, .steps = 6});  // last batch: 3 rows
    expect_promised_rows(9, {.replicas = 4, .batch_size = 9, .preload = preload, .steps = 3});
    expect_promised_rows(2, {.replicas = 4, .batch_size = 8, .preload = preload, .steps = 3});  // 2 rows in an epoch
    expect_promised_rows(2, {.replicas = 4, .batch_size = 1, .preload = preload, .steps = 5});
  }
}

TEST(BatchRing, StartsAtAnyStep) {
  for (const int preload : {0, 2}) {
    for (const std::uint64_t first : {1, 4, 5, 13}) {
      expect_promised_rows(
          37, {.replicas = 2, .batch_size = 8, .seed = 11, .preload = preload, .first_step = first, .steps = 6});
    }
  }
}

TEST(BatchRing, KeepsTheOrderOfTheDataSetWhenToldTo) {
  BatchRing ring(std::make_shared<CodedDataset>(5), {.batch_size = 2, .shuffle = false, .steps = 3});
  std::vector<std::uint64_t> indices;
  const auto all = drain(ring, 1);
  for (const Given& given : all[0]) {
    for (const CodedImage& image : given.images) indices.push_back(image.index);
  }
  EXPECT_THAT(indices, testing::ElementsAre(0, 1, 2, 3, 4));
}

TEST(BatchRing, HasNothingAfterTheLastStep) {
  BatchRing none(std::make_shared<CodedDataset>(5), {.batch_size = 2, .steps = 0});
  EXPECT_FALSE(none.next(0));
  BatchRing one(std::make_shared<CodedDataset>(5), {.batch_size = 2, .first_step = UINT64_MAX - 1});
  EXPECT_TRUE(one.next(0));
  EXPECT_FALSE(one.next(0));
  EXPECT_FALSE(one.next(0));
}

TEST(BatchRing, LoadsAsManyBatchesAheadAsAsked) {
  for (const int preload : {1, 2, 5}) {
    const auto set = std::make_shared<CodedDataset>(1000);
    BatchRing ring(set, {.batch_size = 8, .preload = preload});
    const auto slots = static_cast<std::uint64_t>(preload) + 1;
    wait_until([&] { return ring.counters().batches == slots; });
    EXPECT_EQ(set->reads(), 8 * slots);
    for (std::uint64_t step = 0; step < 4; ++step) {
      auto batch = ring.next(0);
      ASSERT_TRUE(batch);
      EXPECT_EQ(set->reads(), 8 * (slots + step));  // nothing is loaded into a slot that is in use
      batch->release();
      EXPECT_EQ(batch->rows(), 0U);
      wait_until([&] { return ring.counters().batches == slots + step + 1; });
    }
    EXPECT_EQ(ring.counters().ready_most, slots - 1);
    EXPECT_EQ(ring.counters().ready_sum, 4 * (slots - 1));
    EXPECT_EQ(ring.preload(), preload);
  }
}

TEST(BatchRing, LoadsNothingAheadWithPreloadZero) {
  const auto set = std::make_shared<CodedDataset>(1000);
  BatchRing ring(set, {.batch_size = 8, .preload = 0});
  for (std::size_t step = 0; step < 4; ++step) {
    EXPECT_EQ(set->reads(), 8 * step);
    EXPECT_TRUE(ring.next(0));
  }
  EXPECT_EQ(ring.counters().batches, 4U);
  EXPECT_EQ(ring.counters().ready_most, 0U);
  EXPECT_GT(ring.counters().seconds_waited.at(0), 0.0);
}

TEST(BatchRing, WaitsForTheSlowestReplicaBeforeASlotIsUsedAgain) {
  const auto set = std::make_shared<CodedDataset>(1000);
  BatchRing ring(set, {.replicas = 2, .batch_size = 8, .preload = 1});
  auto slow = ring.next(1);
  for (int step = 0; step < 2; ++step) ASSERT_TRUE(ring.next(0));  // replica 0 is two steps ahead
  EXPECT_EQ(set->reads(), 16U);
  slow->release();
  EXPECT_EQ(ring.next(0)->step(), 2U);
}

TEST(BatchRing, LoadsWithSeveralThreadsAtATime) {
  std::barrier together(3);
  std::atomic<int> first{3};
  const auto set = std::make_shared<CodedDataset>(64, [&](std::size_t) {
    if (first.fetch_sub(1) > 0) together.arrive_and_wait();  // hangs unless three threads read
  });
  BatchRing ring(set, {.replicas = 4, .batch_size = 16, .preload = 2, .loaders = 3, .steps = 8});
  wait_until([&] { return ring.counters().batches == 3; });
  const std::vector<std::uint64_t> rows = ring.counters().rows_by_loader;
  EXPECT_EQ(std::accumulate(rows.begin(), rows.end(), std::uint64_t{0}), 48U);
  EXPECT_THAT(rows, testing::Each(testing::Gt(0U)));
  EXPECT_EQ(drain(ring, 4).at(3).size(), 8U);
  EXPECT_EQ(ring.counters().rows, 128U);
}

TEST(BatchRing, LetsAReplicaHelpWithABatchThatIsNotThere) {
  Gate gate;
  const auto set = std::make_shared<CodedDataset>(64, [&](std::size_t index) {
    if (index < 4) gate.pass();  // the first replica's part of the first batch
  });
  BatchRing ring(set, {.replicas = 2, .batch_size = 8, .shuffle = false, .preload = 1});
  gate.await_waiting(1);
  std::jthread replica([&] { EXPECT_THAT(ring.next(1)->labels(), testing::ElementsAre(4, 5, 6, 7)); });
  wait_until([&] { return set->reads() == 4; });  // the loader has read none
  EXPECT_THAT(ring.counters().rows_by_loader, testing::ElementsAre(0));
  gate.open();
}

// A batch of 10 images of 16 bytes and 10 labels: 160 bytes, filled up to 192, and 80.
constexpr std::size_t kSlotBytes = 272;

TEST(BatchRing, KeepsFewerBatchesUnderAByteCap) {
  testing::internal::CaptureStderr();
  BatchRing ring(std::make_shared<CodedDataset>(100),
                 {.batch_size = 10, .preload = 5, .byte_cap = 3 * kSlotBytes + 1, .steps = 20});
  EXPECT_EQ(drain(ring, 1)[0].size(), 20U);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(ring.preload(), 2);
  EXPECT_EQ(ring.bytes(), 3 * kSlotBytes);
  EXPECT_LE(ring.counters().ready_most, 2U);
  EXPECT_THAT(log, testing::HasSubstr("5 batches of 272 B were to be loaded ahead"));
  EXPECT_THAT(log, testing::HasSubstr("leaves room for 2"));
  EXPECT_EQ(std::ranges::count(log, '\n'), 1);
}

TEST(BatchRing, KeepsTheBatchInUseUnderAnyByteCap) {
  testing::internal::CaptureStderr();
  BatchRing ring(std::make_shared<CodedDataset>(100), {.batch_size = 10, .preload = 2, .byte_cap = 1, .steps = 20});
  testing::internal::GetCapturedStderr();
  EXPECT_EQ(ring.preload(), 0);
  EXPECT_EQ(ring.bytes(), kSlotBytes);
  EXPECT_EQ(drain(ring, 1)[0].size(), 20U);
}

TEST(BatchRing, SaysNothingWhereAllFits) {
  testing::internal::CaptureStderr();
  const BatchRing ring(std::make_shared<CodedDataset>(100),
                       {.batch_size = 10, .preload = 2, .byte_cap = 3 * kSlotBytes});
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(ring.bytes(), 3 * kSlotBytes);
}

TEST(BatchRing, TakesItsMemoryFromTheCaller) {
  std::vector<int> ranks;
  std::size_t bytes = 0;
  const auto live = std::make_shared<int>();  // each block holds it
  {
    BatchRing ring(
        std::make_shared<CodedDataset>(100),
        {.replicas = 3, .batch_size = 2, .preload = 1, .steps = 5, .allocate = [&](int rank, std::size_t size) {
           ranks.push_back(rank);
           bytes += size;
           auto memory = allocate_pageable(rank, size);
           std::byte* const data = memory.get();
           return std::shared_ptr<std::byte>(data, [memory = std::move(memory), live](std::byte*) {});
         }});
    EXPECT_THAT(ranks, testing::ElementsAre(0, 1, 0, 1));  // replica 2 never has rows
    EXPECT_EQ(ring.bytes(), bytes);
    EXPECT_EQ(live.use_count(), 5);
  }
  EXPECT_EQ(live.use_count(), 1);
}

}  // namespace
}  // namespace sumpter
