// What replicas, loaders and batches of one ring share. A slot goes round: claimed part by part by whoever loads, whole
// once all parts are loaded, held until every replica has released it, and then free for the batch preload + 1 steps
// on.
#pragma once

#include <atomic>
#include <chrono>
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

#include "base/clock.h"
#include "base/trace.h"
#include "input/order.h"
#include "input/ring.h"
#include "sumpter/input.h"

namespace sumpter {

class RingState : public std::enable_shared_from_this<RingState> {
 public:
  RingState(std::shared_ptr<const Dataset> dataset, const RingOptions& options);

  std::optional<Batch> next(int rank);
  void release(std::uint64_t step, int rank);
  void stop() { stop_.request_stop(); }
  // Loads whatever can be loaded until the ring is stopped.
  void run_loader(std::size_t loader);

  int loaders() const { return static_cast<int>(loader_count_); }
  std::size_t slots() const { return slots_.size(); }
  std::size_t bytes() const { return slots_.size() * slot_bytes_; }
  const BatchOrder& order() const { return order_; }
  RingCounters counters() const;

 private:
  static constexpr std::size_t kNoItem = SIZE_MAX;

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
  // A thread that may load: a loader, or a replica that helps. What it reads can be looked at while it does.
  struct Reader {
    std::optional<std::uint64_t> step;  // of the part that it loads
    std::uint64_t rows = 0;             // loaded until now
    std::atomic<std::size_t> item{kNoItem};
    std::atomic<Clock::rep> since{0};  // when it began to read that item
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
  const Slot& slot_of(std::uint64_t step) const { return slots_[step % slots_.size()]; }
  bool is_whole(std::uint64_t step);
  bool is_settled(std::uint64_t step);
  bool can_claim();
  Claim claim();
  // Claims, and loads with the mutex released.
  void load_one(std::unique_lock<std::mutex>& lock, Reader& reader);
  void await(std::unique_lock<std::mutex>& lock, std::uint64_t step, Reader& reader);
  // Waits until the step is settled or this replica can help, and says so where that takes long.
  void wait_for(std::unique_lock<std::mutex>& lock, std::uint64_t step);
  bool can_help(std::uint64_t step) { return load_step_ == step && can_claim(); }
  std::string describe_stall(std::uint64_t step, Clock::time_point waiting_since) const;
  std::string name_of(const Reader& reader) const;
  void count_ready(std::uint64_t step);
  Batch take(int rank);

  void fill(const Claim& claim, Reader& reader) const;

  const std::shared_ptr<const Dataset> dataset_;
  const std::size_t image_bytes_;
  const int replica_count_;
  const std::chrono::milliseconds stall_after_;
  const std::function<void(const std::string&)> stalled_;
  Trace* const trace_;
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
  std::size_t loader_count_ = 0;
  std::vector<Reader> readers_;   // the loaders, then the replicas
  Clock::time_point reported_{};  // when a replica last said that its step does not come
  RingCounters counters_;         // but for what replicas_ and readers_ count
};

}  // namespace sumpter
