#include "input/ring_state.h"

#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/units.h"
#include "input/item.h"

namespace sumpter {
namespace {

constexpr std::size_t kLabelAlignment = 64;  // labels stand behind the images: one copy moves both

constexpr std::size_t aligned(std::size_t bytes) {
  return (bytes + kLabelAlignment - 1) / kLabelAlignment * kLabelAlignment;
}

void check_range(std::string_view what, int value, int least, int most) {
  if (value < least || value > most) {
    raise<RequestError>("input: {} is {}, but must be {} to {}", what, value, least, most);
  }
}

const RingOptions& checked(const RingOptions& options) {
  check_range("the number of replicas", options.replicas, 1, 1024);
  check_range("preload", options.preload, 0, 1024);
  check_range("the number of loaders", options.loaders, 1, 256);
  constexpr std::chrono::milliseconds kLeastStall{1}, kMostStall{std::chrono::hours(1000)};
  if (options.stall_after < kLeastStall || options.stall_after > kMostStall) {
    raise<RequestError>("input: stall_after is {} ms, but must be {} to {}", options.stall_after.count(),
                        kLeastStall.count(), kMostStall.count());
  }
  return options;
}

const Dataset& checked(const Dataset& dataset) {
  if (dataset.type() != ElementType::u8 && dataset.type() != ElementType::f32) {
    raise<RequestError>("input: the data set's elements are {}, but must be u8 or f32", name_of(dataset.type()));
  }
  return dataset;
}

// Where all the batches asked for exceed the cap: as many as fit, at least the one in use.
std::size_t slots_within_cap(const RingOptions& options, std::size_t slot_bytes) {
  const std::size_t wanted = static_cast<std::size_t>(options.preload) + 1;
  const std::size_t fitting = std::max<std::size_t>(options.byte_cap / slot_bytes, 1);
  if (fitting >= wanted) return wanted;
  log::warning(
      "input: {} batches of {} were to be loaded ahead of the one in use, but the cap of {} leaves room for {}; "
      "raise the cap or lower preload",
      options.preload, describe_bytes(static_cast<double>(slot_bytes)), format_bytes(options.byte_cap), fitting - 1);
  return fitting;
}

}  // namespace

std::shared_ptr<std::byte> allocate_pageable(int /*rank*/, std::size_t bytes) {
  constexpr std::align_val_t kAlignment{kLabelAlignment};
  try {
    return {static_cast<std::byte*>(::operator new(bytes, kAlignment)),
            [](std::byte* memory) { ::operator delete(memory, kAlignment); }};
  } catch (const std::bad_alloc&) {
    raise<SystemError>("input: no memory for {} of rows; lower preload or the batch size", format_bytes(bytes));
  }
}

RingState::RingState(std::shared_ptr<const Dataset> dataset, const RingOptions& options)
    : dataset_(std::move(dataset)),
      image_bytes_(checked(*dataset_).image_bytes()),
      replica_count_(checked(options).replicas),
      stall_after_(options.stall_after),
      stalled_(options.stalled),
      trace_(options.trace),
      order_({.rows = dataset_->size(),
              .batch_size = options.batch_size,
              .seed = options.seed,
              .shuffle = options.shuffle}),
      batch_rows_(std::min(options.batch_size, dataset_->size())),
      end_step_(options.first_step + std::min(options.steps, UINT64_MAX - options.first_step)),
      replicas_(static_cast<std::size_t>(options.replicas), Replica{.step = options.first_step}),
      load_step_(options.first_step),
      asked_end_(options.first_step) {
  if (batch_rows_ > PTRDIFF_MAX / (image_bytes_ + sizeof(std::int64_t) + kLabelAlignment)) {
    raise<RequestError>("input: batches of {} images of {} bytes fit no memory; lower the batch size", batch_rows_,
                        image_bytes_);
  }
  for (int rank = 0; rank < replica_count_; ++rank) slot_bytes_ += part_bytes(rank);
  slots_.resize(slots_within_cap(options, slot_bytes_));
  for (Slot& slot : slots_) {
    for (int rank = 0; rank < replica_count_; ++rank) slot.parts.push_back(make_part(rank, options.allocate));
  }
  loader_count_ = slots_.size() > 1 ? static_cast<std::size_t>(options.loaders) : 0;
  readers_ = std::vector<Reader>(loader_count_ + replicas_.size());
}

RowRange RingState::rows_of(const Position& position, int rank) const {
  const RowRange part =
      split_rows(position.range.rows, static_cast<std::size_t>(replica_count_), static_cast<std::size_t>(rank));
  return {.begin = position.range.begin + part.begin, .rows = part.rows};
}

std::size_t RingState::part_bytes(int rank) const {
  const std::size_t rows =
      split_rows(batch_rows_, static_cast<std::size_t>(replica_count_), static_cast<std::size_t>(rank)).rows;
  return aligned(rows * image_bytes_) + rows * sizeof(std::int64_t);
}

RingState::Part RingState::make_part(int rank, const SlotAllocator& allocate) const {
  const std::size_t rows =
      split_rows(batch_rows_, static_cast<std::size_t>(replica_count_), static_cast<std::size_t>(rank)).rows;
  if (rows == 0) return {};
  Part part{.memory = allocate(rank, part_bytes(rank)), .images = {}, .labels = {}};
  std::byte* labels = part.memory.get() + aligned(rows * image_bytes_);
  part.images = {reinterpret_cast<std::uint8_t*>(part.memory.get()), rows * image_bytes_};
  part.labels = {reinterpret_cast<std::int64_t*>(labels), rows};
  return part;
}

bool RingState::is_whole(std::uint64_t step) {
  const Slot& slot = slot_of(step);
  return slot.step == step && slot.parts_to_load == 0;
}

// True where waiting for the batch has an end: it is whole, or never will be.
bool RingState::is_settled(std::uint64_t step) { return is_whole(step) || (failure_ && failure_->step <= step); }

bool RingState::can_claim() {
  if (failure_ || stop_.stop_requested() || load_step_ >= end_step_) return false;
  return load_rank_ > 0 || slot_of(load_step_).parts_held == 0;
}

RingState::Claim RingState::claim() {
  Slot& slot = slot_of(load_step_);
  if (load_rank_ == 0) {
    slot.step = load_step_;
    slot.position = order_.position(load_step_);
    slot.parts_to_load = slot.parts_held = replica_count_;
  }
  const Claim claimed{.step = load_step_,
                      .position = slot.position,
                      .rank = load_rank_,
                      .part = &slot.parts[static_cast<std::size_t>(load_rank_)]};
  if (++load_rank_ == replica_count_) {
    load_rank_ = 0;
    ++load_step_;
  }
  return claimed;
}

void RingState::load_one(std::unique_lock<std::mutex>& lock, Reader& reader) {
  const Claim claimed = claim();
  reader.step = claimed.step;
  reader.item.store(kNoItem, std::memory_order_relaxed);
  reader.since.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
  lock.unlock();
  std::optional<Failure> failure;
  try {
    const TraceSpan span(trace_, "load", {"step", static_cast<std::int64_t>(claimed.step)}, {"rank", claimed.rank});
    fill(claimed, reader);
  } catch (...) {
    failure = {.step = claimed.step,
               .message = fmt::format("step {}: {}", claimed.step, describe(std::current_exception()))};
  }
  lock.lock();
  reader.step.reset();
  if (stop_.stop_requested()) return;  // the part may have gaps
  if (failure) {
    if (!failure_ || failure->step < failure_->step) failure_ = std::move(failure);
    changed_.notify_all();
    return;
  }
  const std::size_t rows = rows_of(claimed.position, claimed.rank).rows;
  reader.rows += rows;
  counters_.rows += rows;
  counters_.bytes += rows * (image_bytes_ + sizeof(std::int64_t));
  if (--slot_of(claimed.step).parts_to_load == 0) {
    ++counters_.batches;
    changed_.notify_all();
  }
}

void RingState::fill(const Claim& claim, Reader& reader) const {
  const auto permutation = order_.permutation(claim.position.epoch);
  const RowRange range = rows_of(claim.position, claim.rank);
  for (std::size_t row = 0; row < range.rows && !stop_.stop_requested(); ++row) {
    const Item item{.index = (*permutation)[range.begin + row], .epoch = claim.position.epoch};
    reader.since.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
    reader.item.store(item.index, std::memory_order_relaxed);
    claim.part->labels[row] = read_item(*dataset_, item, claim.part->images.subspan(row * image_bytes_, image_bytes_));
  }
}

void RingState::run_loader(std::size_t loader) {
  std::unique_lock lock(mutex_);
  const std::stop_token stop = stop_.get_token();
  while (changed_.wait(lock, stop, [this] { return can_claim(); })) load_one(lock, readers_[loader]);
}

// Whoever lacks a batch takes part in loading it: with no loaders it is loaded so, and where cores are scarce nobody
// sleeps until a loader gets one.
void RingState::await(std::unique_lock<std::mutex>& lock, std::uint64_t step, Reader& reader) {
  while (!is_settled(step) && !stop_.stop_requested()) {
    if (can_help(step)) {
      load_one(lock, reader);
    } else {
      const TraceSpan span(trace_, "wait for input", {"step", static_cast<std::int64_t>(step)});
      wait_for(lock, step);
    }
  }
}

void RingState::wait_for(std::unique_lock<std::mutex>& lock, std::uint64_t step) {
  const std::stop_token stop = stop_.get_token();
  const auto ready = [&] { return is_settled(step) || can_help(step); };
  const auto since = Clock::now();
  const auto to_report = [&] { return std::max(since, reported_) + stall_after_; };
  while (!changed_.wait_until(lock, stop, to_report(), ready) && !stop.stop_requested()) {
    if (Clock::now() < to_report()) continue;  // another replica has said it meanwhile
    reported_ = Clock::now();
    const std::string line = describe_stall(step, since);
    lock.unlock();
    if (stalled_) {
      stalled_(line);
    } else {
      log::warning("{}", line);
    }
    lock.lock();
  }
}

// The replica has all earlier steps. So all parts of this one are loaded or being loaded; or nobody has begun, because
// its slot still holds an earlier step.
std::string RingState::describe_stall(std::uint64_t step, Clock::time_point waiting_since) const {
  const auto now = Clock::now();
  const std::string begin =
      fmt::format("no input for {}: step {} waits for ", describe_seconds(seconds_between(waiting_since, now)), step);
  const auto since = [](const Reader& reader) {
    return Clock::time_point(Clock::duration(reader.since.load(std::memory_order_relaxed)));
  };
  const Reader* slowest = nullptr;
  for (const Reader& reader : readers_) {
    if (reader.step == step && (slowest == nullptr || since(reader) < since(*slowest))) slowest = &reader;
  }
  if (slowest != nullptr) {
    const std::size_t item = slowest->item.load(std::memory_order_relaxed);
    if (item == kNoItem) return fmt::format("{}{}, which puts the epoch's rows in order", begin, name_of(*slowest));
    return fmt::format("{}item {} of the data set, which {} has been reading for {}; is its disk or network gone?",
                       begin, item, name_of(*slowest), describe_seconds(seconds_between(since(*slowest), now)));
  }
  const std::uint64_t held = slot_of(step).step.value_or(step);
  const auto behind = std::ranges::find_if(replicas_, [&](const Replica& replica) { return replica.step <= held; });
  if (behind == replicas_.end()) return fmt::format("{}step {} to be released by all replicas", begin, held);
  return fmt::format("{}replica {}, which has not asked for step {} yet", begin, behind - replicas_.begin(), held);
}

std::string RingState::name_of(const Reader& reader) const {
  const auto number = static_cast<std::size_t>(&reader - readers_.data());
  return number < loader_count_ ? fmt::format("loader {}", number) : fmt::format("replica {}", number - loader_count_);
}

void RingState::count_ready(std::uint64_t step) {
  if (step < asked_end_) return;
  asked_end_ = step + 1;
  std::uint64_t ready = 0;
  while (ready + 1 < slots_.size() && is_whole(step) && is_whole(step + ready + 1)) ++ready;
  ++counters_.asked;
  counters_.ready_sum += ready;
  counters_.ready_most = std::max(counters_.ready_most, ready);
}

std::optional<Batch> RingState::next(int rank) {
  check_range("the rank", rank, 0, replica_count_ - 1);
  const auto start = Clock::now();
  std::unique_lock lock(mutex_);
  Replica& replica = replicas_[static_cast<std::size_t>(rank)];
  const std::uint64_t step = replica.step;
  if (step == end_step_) return std::nullopt;
  if (replica.held == slots_.size()) {
    raise<RequestError>(
        "input: replica {} asks for step {} and would wait for itself: it holds {} batches, and there is "
        "room for {}; release one before asking for the next, or raise preload",
        rank, step, replica.held, slots_.size());
  }
  count_ready(step);
  await(lock, step, readers_[loader_count_ + static_cast<std::size_t>(rank)]);
  replica.seconds_waited += seconds_since(start);
  if (stop_.stop_requested()) return std::nullopt;
  if (failure_ && failure_->step <= step) throw DataError(failure_->message);
  return take(rank);
}

Batch RingState::take(int rank) {
  Replica& replica = replicas_[static_cast<std::size_t>(rank)];
  const Slot& slot = slot_of(replica.step);
  const Part& part = slot.parts[static_cast<std::size_t>(rank)];
  const std::size_t rows = rows_of(slot.position, rank).rows;
  Batch batch;
  batch.step_ = replica.step;
  batch.epoch_ = slot.position.epoch;
  batch.batch_in_epoch_ = slot.position.batch;
  batch.all_rows_ = slot.position.range.rows;
  batch.images_ = part.images.first(rows * image_bytes_);
  batch.labels_ = part.labels.first(rows);
  batch.rank_ = rank;
  batch.ring_ = shared_from_this();
  ++replica.step;
  ++replica.held;
  return batch;
}

void RingState::release(std::uint64_t step, int rank) {
  const std::lock_guard lock(mutex_);
  --replicas_[static_cast<std::size_t>(rank)].held;
  if (--slot_of(step).parts_held == 0) changed_.notify_all();
}

RingCounters RingState::counters() const {
  const std::lock_guard lock(mutex_);
  RingCounters counters = counters_;
  for (std::size_t loader = 0; loader < loader_count_; ++loader) {
    counters.rows_by_loader.push_back(readers_[loader].rows);
  }
  for (const Replica& replica : replicas_) counters.seconds_waited.push_back(replica.seconds_waited);
  return counters;
}

}  // namespace sumpter
