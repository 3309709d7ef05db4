// The ring of batches: the host loads the next batches while replicas work on this one, each batch already split into
// one part per replica. Which rows a batch has depends on seed and step alone, never on preload, loaders or replicas.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/units.h"
#include "sumpter/input.h"

namespace sumpter {

class Trace;

// Makes the memory of one replica's part in one slot; it lives as long as the pointer. Called while the ring is made.
using SlotAllocator = std::function<std::shared_ptr<std::byte>(int rank, std::size_t bytes)>;

// Pageable memory, aligned to 64 bytes. Throws SystemError where there is not enough.
std::shared_ptr<std::byte> allocate_pageable(int rank, std::size_t bytes);

struct RingOptions {
  int replicas = 1;            // 1 to 1024
  std::size_t batch_size = 1;  // rows of a batch over all replicas, at least 1
  std::uint64_t seed = 0;
  bool shuffle = true;
  int preload = 2;              // batches loaded ahead of the one in use, 0 to 1024; 0: loaded by those who ask
  int loaders = 1;              // threads that load, 1 to 256; none where nothing is loaded ahead
  std::size_t byte_cap = kGiB;  // for all slots together; fewer are loaded ahead where preload + 1 batches exceed it
  std::uint64_t first_step = 0;
  std::uint64_t steps = std::numeric_limits<std::uint64_t>::max();  // batches in all; then there are no more
  SlotAllocator allocate = allocate_pageable;
  // A replica that has waited for so long says what for, and again each time as much has passed: in a line such as "no
  // input for 60.0 s: step 12 waits for item 345 of the data set, which loader 0 has been reading for 58.2 s; is its
  // disk or network gone?". Of several that wait one does. At least 1 ms.
  std::chrono::milliseconds stall_after{60'000};
  // Gets that line, on the thread of the replica that waits, with nothing locked; what it throws comes out of next().
  // Null: the line is logged as a warning. Nobody waits, and nothing is said, where the only replica loads by itself.
  std::function<void(const std::string&)> stalled = {};
  // Not owned, outlives the ring and its batches; null: none. A "load" {step, rank} for each part on the row of the
  // thread that loads it, a "wait for input" {step} where next() waits.
  Trace* trace = nullptr;
};

struct RingCounters {
  std::uint64_t batches = 0;  // loaded whole
  std::uint64_t rows = 0;     // loaded
  std::uint64_t bytes = 0;    // of their images and labels
  std::uint64_t asked = 0;    // batches that at least one replica has asked for
  // Whole batches behind one when it was first asked for: the sum over all that were asked for, and the most.
  std::uint64_t ready_sum = 0;
  std::uint64_t ready_most = 0;
  std::vector<std::uint64_t> rows_by_loader;  // of each loader thread
  std::vector<double> seconds_waited;         // of each replica, in next(), its loading included
};

class RingState;

// One replica's part of a batch. The rows stay where they are until it is released or destroyed, even beyond the ring.
class Batch {
 public:
  Batch(Batch&& other) noexcept;
  Batch& operator=(Batch&& other) noexcept;
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;
  ~Batch();

  std::uint64_t step() const { return step_; }
  std::uint64_t epoch() const { return epoch_; }
  std::size_t batch_in_epoch() const { return batch_in_epoch_; }
  std::size_t all_rows() const { return all_rows_; }   // of all replicas together
  std::size_t rows() const { return labels_.size(); }  // of this replica, maybe none

  // rows() images of image_bytes() each, one after another; aligned to 64 bytes in memory of allocate_pageable.
  std::span<const std::uint8_t> images() const { return images_; }
  std::span<const std::int64_t> labels() const { return labels_; }

  // Gives the rows back to the ring; images() and labels() are empty then. Doing it twice does nothing. It need not be
  // the thread that asked for the batch.
  void release();

 private:
  friend class RingState;
  Batch() = default;

  std::uint64_t step_ = 0, epoch_ = 0;
  std::size_t batch_in_epoch_ = 0, all_rows_ = 0;
  std::span<const std::uint8_t> images_;
  std::span<const std::int64_t> labels_;
  int rank_ = 0;
  std::shared_ptr<RingState> ring_;  // null once released
};

class BatchRing {
 public:
  // Begins to load at once. Throws RequestError where an option is out of range or the data set has no items,
  // SystemError where memory or a thread cannot be had.
  BatchRing(std::shared_ptr<const Dataset> dataset, const RingOptions& options);
  BatchRing(const BatchRing&) = delete;
  BatchRing& operator=(const BatchRing&) = delete;
  // Stops, and waits for the loader threads, each of which finishes the item it is reading.
  ~BatchRing();

  // The replica's part of its next batch; blocks until all parts are loaded, and takes part in loading what of this
  // batch nobody has begun: with preload 0 that is how all is loaded. Nothing after the last batch, and once the ring
  // is stopped. Release a batch before asking for the next one: it frees its slot once all replicas have. Each replica
  // has a thread of its own for it; replicas may be apart by as many batches as there are slots. Throws DataError, with
  // the item's number, on every replica where the data set threw for this batch, and the same again for all further
  // ones; RequestError where the replica holds all slots and would wait for itself.
  std::optional<Batch> next(int rank);

  // Ends all waiting, from any thread: next() returns nothing from now on.
  void stop();

  std::size_t batches_per_epoch() const;
  int preload() const;        // batches loaded ahead, after the byte cap
  std::size_t bytes() const;  // memory of all slots
  RingCounters counters() const;

 private:
  std::shared_ptr<RingState> state_;
  std::vector<std::jthread> loaders_;
};

}  // namespace sumpter
