// Rings whose data set fails, that are stopped or destroyed in mid-flight, or asked for what cannot be.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <new>
#include <stdexcept>
#include <thread>

#include "coded_dataset.h"
#include "input/random.h"
#include "input/ring.h"
#include "sumpter/error.h"

namespace sumpter {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string next_error(BatchRing& ring, int rank) {
  try {
    const auto batch = ring.next(rank);
    ADD_FAILURE() << "rank " << rank << " got " << (batch ? fmt::format("step {}", batch->step()) : "nothing");
  } catch (const DataError& error) {
    return error.what();
  }
  return {};
}

// Item 100 of batches of 16 in the order of the data set: step 6.
void expect_error_at_item_100(const RingOptions& options, std::function<void()> fail, const std::string& message) {
  SCOPED_TRACE(fmt::format("{} replicas, preload {}, {} loaders", options.replicas, options.preload, options.loaders));
  const auto set = std::make_shared<CodedDataset>(1000, [&](std::size_t index) {
    if (index == 100) fail();
  });
  BatchRing ring(set, options);
  std::vector<std::jthread> threads;
  threads.reserve(static_cast<std::size_t>(options.replicas));
  for (int rank = 0; rank < options.replicas; ++rank) {
    threads.emplace_back([&, rank] {
      for (std::uint64_t step = 0; step < 6; ++step) {
        const auto batch = ring.next(rank);
        ASSERT_TRUE(batch);
        EXPECT_EQ(batch->step(), step);
      }
      EXPECT_EQ(next_error(ring, rank), "step 6: item 100 of the data set: " + message);
      EXPECT_EQ(next_error(ring, rank), "step 6: item 100 of the data set: " + message);
    });
  }
}

TEST(BatchRingFaults, GivesTheDataSetsErrorToEveryReplica) {
  for (const int replicas : {1, 4}) {
    for (const int preload : {0, 1, 4}) {
      for (const int loaders : {1, 3}) {
        const RingOptions options{
            .replicas = replicas, .batch_size = 16, .shuffle = false, .preload = preload, .loaders = loaders};
        expect_error_at_item_100(
            options, [] { throw DataError("no JPEG"); }, "no JPEG");
        expect_error_at_item_100(
            options, [] { throw std::out_of_range("beyond"); }, "beyond");
        expect_error_at_item_100(
            options, [] { throw 7; }, "an exception that is not a std::exception");
      }
    }
  }
}

class WrongLabel : public CodedDataset {
 public:
  WrongLabel() : CodedDataset(1000) {}
  std::int64_t get(const Item& item, std::span<std::uint8_t> image) const override {
    const std::int64_t label = CodedDataset::get(item, image);
    return item.index == 100 ? 10 : item.index == 50 ? -1 : label;
  }
};

TEST(BatchRingFaults, NamesTheItemWhoseLabelIsOutOfRange) {
  for (const int preload : {0, 2}) {
    BatchRing high(std::make_shared<WrongLabel>(),
                   {.batch_size = 10, .shuffle = false, .preload = preload, .first_step = 10});
    EXPECT_EQ(next_error(high, 0), "step 10: item 100 of the data set: expected a label of 0 to 9, found 10");
    BatchRing low(std::make_shared<WrongLabel>(),
                  {.batch_size = 10, .shuffle = false, .preload = preload, .first_step = 5});
    EXPECT_EQ(next_error(low, 0), "step 5: item 50 of the data set: expected a label of 0 to 9, found -1");
  }
}

TEST(BatchRingFaults, IsDestroyedWithoutHavingBeenAsked) {
  for (const int preload : {0, 1, 3}) {
    for (const int loaders : {1, 4}) {
      BatchRing ring(std::make_shared<CodedDataset>(1000),
                     {.replicas = 2, .batch_size = 16, .preload = preload, .loaders = loaders});
    }
  }
}

TEST(BatchRingFaults, EndsAllWaitingWhenStopped) {
  Gate gate;
  const auto set = std::make_shared<CodedDataset>(1000, [&](std::size_t) { gate.pass(); });
  BatchRing ring(set, {.replicas = 3, .batch_size = 16, .preload = 2, .loaders = 3});
  gate.await_waiting(3);  // every part of the first batch is being loaded
  std::vector<std::jthread> replicas;
  replicas.reserve(3);
  for (int rank = 0; rank < 3; ++rank) {
    replicas.emplace_back([&, rank] { EXPECT_FALSE(ring.next(rank)); });
  }
  while (ring.counters().asked == 0) std::this_thread::yield();
  ring.stop();
  replicas.clear();  // they return although no item has been read
  EXPECT_EQ(set->reads(), 0U);
  gate.open();
  EXPECT_FALSE(ring.next(0));
}

TEST(BatchRingFaults, IsDestroyedWhileAReplicaWaits) {
  Gate gate;
  const auto set = std::make_shared<CodedDataset>(1000, [&](std::size_t) { gate.pass(); });
  auto ring = std::make_unique<BatchRing>(set, RingOptions{.batch_size = 16, .preload = 2});
  gate.await_waiting(1);
  std::jthread replica([&waiting_at = *ring] { EXPECT_FALSE(waiting_at.next(0)); });
  while (ring->counters().asked == 0) std::this_thread::yield();
  std::jthread destroyer([&] { ring.reset(); });
  replica.join();  // the destructor still waits for the item that is being read
  gate.open();
}

// Stopped at a random point of the run, from outside, with replicas that hold, wait and load.
TEST(BatchRingFaults, IsDestroyedAtAnyMoment) {
  Random random(77);
  for (int round = 0; round < 60; ++round) {
    const RingOptions options{.replicas = 1 + static_cast<int>(random.below(4)),
                              .batch_size = 16,
                              .preload = static_cast<int>(random.below(4)),
                              .loaders = 1 + static_cast<int>(random.below(3))};
    const std::size_t stop_after = random.below(400);
    const auto set = std::make_shared<CodedDataset>(100);
    BatchRing ring(set, options);
    std::vector<std::jthread> replicas;
    replicas.reserve(static_cast<std::size_t>(options.replicas));
    for (int rank = 0; rank < options.replicas; ++rank) {
      replicas.emplace_back([&, rank] {
        std::uint64_t step = 0;
        while (const auto batch = ring.next(rank)) EXPECT_EQ(batch->step(), step++);
      });
    }
    while (set->reads() < stop_after) std::this_thread::yield();
    ring.stop();
  }
}

TEST(BatchRingFaults, LeavesABatchsRowsWhereTheyAreWhenDestroyed) {
  for (const int preload : {0, 2}) {
    auto ring = std::make_unique<BatchRing>(std::make_shared<CodedDataset>(40),
                                            RingOptions{.batch_size = 4, .shuffle = false, .preload = preload});
    ring->next(0)->release();
    auto batch = ring->next(0);
    ASSERT_TRUE(batch);
    ring.reset();
    EXPECT_THAT(batch->labels(), testing::ElementsAre(4, 5, 6, 7));
    Batch moved = std::move(*batch);
    batch.reset();
    EXPECT_THAT(moved.labels(), testing::ElementsAre(4, 5, 6, 7));
    moved.release();
    EXPECT_EQ(moved.rows(), 0U);
    moved.release();
  }
}

TEST(BatchRingFaults, RefusesToWaitForTheReplicaThatAsks) {
  for (const int preload : {0, 2}) {
    BatchRing ring(std::make_shared<CodedDataset>(1000), {.replicas = 2, .batch_size = 16, .preload = preload});
    std::vector<Batch> held;
    for (int batch = 0; batch <= preload; ++batch) held.push_back(*ring.next(1));
    try {
      ring.next(1);
      ADD_FAILURE() << "got a batch";
    } catch (const RequestError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("replica 1"), HasSubstr("release one")));
    }
    held.erase(held.begin());
    ring.next(0)->release();
    EXPECT_EQ(ring.next(1)->step(), static_cast<std::uint64_t>(preload) + 1);
  }
}

TEST(BatchRingFaults, RefusesOptionsThatAreOutOfRange) {
  const auto set = std::make_shared<CodedDataset>(100);
  const std::vector<std::pair<RingOptions, std::string>> wrong = {
      {{.replicas = 0}, "replicas"},    {{.batch_size = 0}, "batch size"}, {{.preload = -1}, "preload is -1"},
      {{.preload = 1025}, "0 to 1024"}, {{.loaders = 0}, "loaders is 0"},
  };
  for (const auto& [options, text] : wrong) {
    try {
      const BatchRing ring(set, options);
      ADD_FAILURE() << "accepted what is wrong with " << text;
    } catch (const RequestError& error) {
      EXPECT_THAT(error.what(), HasSubstr(text));
    }
  }
  EXPECT_THROW(BatchRing(std::make_shared<CodedDataset>(0), {}), RequestError);
  BatchRing ring(set, {.replicas = 2});
  EXPECT_THROW(ring.next(2), RequestError);
  EXPECT_THROW(ring.next(-1), RequestError);
}

TEST(BatchRingFaults, PassesOnThatThereIsNoMemory) {
  EXPECT_THROW(BatchRing(std::make_shared<CodedDataset>(100),
                         {.allocate = [](int, std::size_t) -> std::shared_ptr<std::byte> { throw std::bad_alloc(); }}),
               std::bad_alloc);
}

}  // namespace
}  // namespace sumpter
