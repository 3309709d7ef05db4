// What replicas, loaders and batches of one ring share. A slot goes round: claimed part by part by whoever loads, whole
// once all parts are loaded, held until every replica has released it, and then free for the batch preload + 1 steps
// on.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "input/dataset.h"
#include "input/order.h"
#include "input/ring.h"

namespace sumpter {

class RingState : public std::enable_shared_from_this<RingState> {
 public:
  RingState(std::shared_ptr<const Dataset> dataset, const RingOptions& options);

  std::optional<Batch> next(int rank);
  void release(std::uint64_t step, int rank);
  void stop() { stop_.request_stop(); }
  // Loads whatever can be loaded until the ring is stopped.
  void run_loader(std::size_t loader);

  int loaders() const { return static_cast<int>(rows_by_loader_.size()); }
  std::size_t slots() const { return slots_.size(); }
  std::size_t bytes() const { return slots_.size() * slot_bytes_; }
  const BatchOrder& order() const { return order_; }
  RingCounters counters() const;

 private:
  // The room for one replica's rows in a slot.
  struct Part {
    std::shared_ptr<std::byte> memory;
    std::span<std::uint8_t> images;
    std::span<std::int64_t> labels;
  };
  struct Slot {
    std::vector<Part> parts;
    std::optional<std::uint64_t> step;
    Position position;
    int parts_to_load = 0;
    int parts_held = 0;  // not yet released by their replicas
  };
  struct Replica {
    std::uint64_t step = 0;  // of the next batch
    std::size_t held = 0;    // batches
    double seconds_waited = 0;
  };
  // One part of one batch, to be loaded by one thread.
  struct Claim {
    std::uint64_t step = 0;
    Position position;
    int rank = 0;
    Part* part = nullptr;
  };
  struct Failure {
    std::uint64_t step = 0;
    std::string message;
  };

  Part make_part(int rank, const SlotAllocator& allocate) const;
  RowRange rows_of(const Position& position, int rank) const;
  std::size_t part_bytes(int rank) const;

  // All of these with the mutex held.
  Slot& slot_of(std::uint64_t step) { return slots_[step % slots_.size()]; }
  bool is_whole(std::uint64_t step);
  bool is_settled(std::uint64_t step);
  bool can_claim();
  Claim claim();
  // Claims, loads with the mutex released, and says how many rows that were.
  std::size_t load_one(std::unique_lock<std::mutex>& lock);
  void await(std::unique_lock<std::mutex>& lock, std::uint64_t step);
  void count_ready(std::uint64_t step);
  Batch take(int rank);

  void fill(const Claim& claim) const;
  std::int64_t read_item(const Item& item, std::span<std::uint8_t> image) const;

  const std::shared_ptr<const Dataset> dataset_;
  const std::size_t image_bytes_;
  const int replica_count_;
  const BatchOrder order_;
  const std::size_t batch_rows_;  // of the largest batch
  std::size_t slot_bytes_ = 0;
  std::uint64_t end_step_;

  std::stop_source stop_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;  // a batch became whole, a slot free, or something failed
  std::vector<Slot> slots_;
  std::vector<Replica> replicas_;
  std::uint64_t load_step_;  // the next part to claim
  int load_rank_ = 0;
  std::uint64_t asked_end_;         // steps below it have been asked for
  std::optional<Failure> failure_;  // of the earliest step that failed
  std::vector<std::uint64_t> rows_by_loader_;
  RingCounters counters_;  // but for what replicas_ and rows_by_loader_ count
};

}  // namespace sumpter
