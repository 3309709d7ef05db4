// Waiting for operations, and what becomes of them when the group is aborted.
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "exchange/member.h"

namespace sumpter::exchange {
namespace {

constexpr std::chrono::milliseconds kLookAround{20};        // how often a waiting member looks at clocks and members
constexpr std::chrono::hours kLongestWait{24 * 365 * 100};  // what clocks can add without running over
constexpr double kDrain = 1.0;                              // seconds that another process's claims are waited for

}  // namespace

// True once done() says so, false when the time is over and that is no fault. Until then helps; every now and then
// looks whether the members that have not left operation `needed` can still do so.
template <typename Done>
bool MemberState::wait_until(const Operation& operation, std::uint64_t needed, Limit limit, Done&& done) {
  if (done()) return true;
  std::optional<TraceSpan> idle;  // while there is nothing to help with
  const auto start = Clock::now();
  const auto end =
      start + std::clamp<std::chrono::milliseconds>(limit.time, std::chrono::milliseconds(0), kLongestWait);
  auto looked = start;
  Waiter waiter(own().waiters, patience_);
  const auto count_time = [&] {
    nanoseconds_waited_.fetch_add((Clock::now() - start) / std::chrono::nanoseconds(1), std::memory_order_relaxed);
  };
  while (!done()) {
    if (aborted(control_)) {
      retire();
      if (done()) break;
      raise_abort();
    }
    if (progress(own_tally_)) {
      idle.reset();
      waiter.progressed();
      if (limit.aborts || Clock::now() < end) continue;
      count_time();
      return done();
    }
    if (trace_ != nullptr && !idle) idle.emplace(trace_, "wait", operation_argument(operation));
    const bool slept = waiter.pause([&] { return done() || aborted(control_) || progress(own_tally_); }, end);
    if (!slept) continue;
    const auto now = Clock::now();
    bool lost = false;
    if (now - looked > kLookAround) {
      looked = now;
      lost = look_for_losses(operation, needed);
    }
    if (lost || now < end) continue;
    if (limit.aborts) {
      time_out(operation, needed, limit.time);
    } else {
      count_time();
      return done();
    }
  }
  count_time();
  return true;
}

// The descriptor, share and small slot of this number were last used kRing operations ago.
void MemberState::make_room(const Operation& operation) {
  if (operation.number <= kRing + left_by_all_) return;
  const std::uint64_t needed = operation.number - kRing;
  wait_until(operation, needed, {group_->options().time_limit, true}, [&] {
    std::uint64_t least = ~std::uint64_t{0};
    for (int rank = 0; rank < members(); ++rank) least = std::min(least, control_.rank(rank).left.value.load());
    left_by_all_ = least;
    return least >= needed;
  });
}

void MemberState::wait(Operation& operation, std::optional<std::chrono::milliseconds> limit) {
  wait_until(operation, operation.number, {limit.value_or(group_->options().time_limit), true},
             [&] { return operation.finished.load(std::memory_order_acquire); });
}

bool MemberState::wait_for(Operation& operation, std::chrono::milliseconds duration) {
  const bool finished = wait_until(operation, operation.number, {duration, false},
                                   [&] { return operation.finished.load(std::memory_order_acquire); });
  return finished || test(operation);  // which notices faults also where only short times are waited
}

bool MemberState::test(Operation& operation) {
  const auto finished = [&] { return operation.finished.load(std::memory_order_acquire); };
  if (finished()) return true;
  if (!progress(own_tally_)) {
    // Who only polls has to notice a fault all the same; the time limit is for those who wait.
    const auto now = Clock::now().time_since_epoch().count();
    auto looked = polled_.load(std::memory_order_relaxed);
    if (Clock::duration(now - looked) > kLookAround && polled_.compare_exchange_strong(looked, now)) {
      look_for_losses(operation, operation.number);
    }
  }
  if (!finished() && aborted(control_)) {
    retire();
    if (!finished()) raise_abort();
  }
  return finished();
}

std::string MemberState::name(int rank) const { return name_of_rank(control_, rank); }

bool MemberState::look_for_losses(const Operation& operation, std::uint64_t needed) {
  for (int rank = 0; rank < members(); ++rank) {
    if (rank == rank_) continue;
    const char* reason = nullptr;
    {
      const std::lock_guard lock(watch_mutex_);
      reason = watch_.fault_of(rank);
    }
    // Looked at in this order: who leaves in peace has finished before.
    if (reason == nullptr || control_.rank(rank).left.value.load() >= needed) continue;
    abort_group(control_, Fault::lost, rank, operation.number,
                fmt::format("{} {} before {} was finished", name(rank), reason, describe(operation)));
    return true;
  }
  return false;
}

void MemberState::time_out(const Operation& operation, std::uint64_t needed, std::chrono::milliseconds limit) {
  const Late found = late(operation, needed);
  abort_group(control_, Fault::timeout, found.ranks.front(), operation.number,
              fmt::format("{}: after {:.1f} s {}", describe(operation), Seconds(limit).count(), found.text));
}

std::string MemberState::pending(const Operation& operation) const {
  const std::string text = late(operation, operation.number).text;
  // Looked at last: what was found of an operation that has ended since means nothing.
  const bool finished = operation.finished.load(std::memory_order_acquire);
  return fmt::format("{}: {}", describe(operation), finished ? "finished" : text);
}

MemberState::Late MemberState::late(const Operation& operation, std::uint64_t needed) const {
  const bool posted = needed == operation.number && posted_by_all(operation.number);
  Late found{laggards(operation, needed), {}};
  if (found.ranks.empty()) found.ranks = {rank_};  // all others have done everything
  for (const int rank : found.ranks) found.text += (found.text.empty() ? "" : ", ") + name(rank);
  found.text += posted                       ? " had not done its part"
                : needed == operation.number ? " had not arrived"
                                             : fmt::format(" had not finished operation number {}", needed);
  return found;
}

// The others that keep this member waiting.
std::vector<int> MemberState::laggards(const Operation& operation, std::uint64_t needed) const {
  const auto which = [&](auto&& test) {
    std::vector<int> ranks;
    for (int rank = 0; rank < members(); ++rank) {
      if (rank != rank_ && test(rank, control_.rank(rank))) ranks.push_back(rank);
    }
    return ranks;
  };
  auto unfinished = which([&](int, const RankBlock& block) { return block.left.value.load() < needed; });
  if (needed != operation.number) return unfinished;
  auto ranks = which([&](int rank, const RankBlock&) {
    return control_.descriptor(needed, rank).ready.load(std::memory_order_acquire) < needed;
  });
  if (!ranks.empty()) return ranks;
  ranks = which([](int, const RankBlock& block) { return block.in_flight.value.load() > 0; });
  if (!ranks.empty()) return ranks;
  // Staged: whoever has done the fewest steps.
  const auto steps = [](const RankBlock& block) {
    return block.arrived.value.load() + block.reduced.value.load() + block.taken.value.load();
  };
  std::uint64_t least = ~std::uint64_t{0};
  for (const int rank : unfinished) least = std::min(least, steps(control_.rank(rank)));
  return which([&](int, const RankBlock& block) { return block.left.value.load() < needed && steps(block) == least; });
}

void MemberState::abort(const std::string& reason) {
  abort_group(control_, Fault::lost, rank_, 0, fmt::format("{} aborted the group: {}", name(rank_), reason));
}

void MemberState::look() {
  for (int rank = 0; rank < members() && !aborted(control_); ++rank) {
    if (rank == rank_) continue;
    {
      const std::lock_guard lock(watch_mutex_);
      if (!watch_.died(rank)) continue;
    }
    // Looked at in this order: who has left in peace said so before its process ended.
    if (control_.rank(rank).presence.load() == Presence::left) continue;
    abort_group(control_, Fault::lost, rank, 0, fmt::format("{} died", name(rank)));
  }
  if (aborted(control_)) raise_abort();
}

void MemberState::call() {
  signal(control_.header().called.value, 1);
  for (int rank = 0; rank < members(); ++rank) ring(control_.rank(rank).called);
}

bool MemberState::wait_until_called(const std::stop_token& stop) {
  std::atomic<bool> stopped{false};
  const std::stop_callback wake(stop, [&] {
    stopped.store(true);
    ring(own().called);
  });
  bool called = false;
  sleep_until(own().called, [&] {
    called = control_.header().called.value.load() != 0;
    return called || stopped.load() || aborted(control_) || own().presence.load() == Presence::left;
  });
  return called;
}

// Something that this member's threads called has thrown.
void MemberState::fault(const std::exception_ptr& error) {
  // Under the lock, so that no waiter of this member sees the abort before its own fault.
  const std::lock_guard lock(watch_mutex_);
  const bool first =
      abort_group(control_, Fault::lost, rank_, 0, fmt::format("{} failed: {}", name(rank_), sumpter::describe(error)));
  if (first) own_fault_ = error;
}

void MemberState::raise_abort() {
  std::exception_ptr own_fault;
  {
    const std::lock_guard lock(watch_mutex_);
    own_fault = own_fault_;
  }
  if (own_fault) std::rethrow_exception(own_fault);
  throw_abort(control_);
}

// After an abort, once: no more writes come from others, what could be finished is, what could not is filled with NaN.
void MemberState::retire() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(retired_, true)) return;
  drain();
  try {
    // An operation that has succeeded on one member succeeds on all: what is left of it needs nobody else.
    while (settle(own_tally_) || staged_step(own_tally_)) {
    }
  } catch (const std::exception& error) {
    log::debug("rank {}: after the group was aborted: {}", rank_, error.what());
  }
  const std::uint64_t mismatched = mismatched_operation(control_);
  for (const auto& operation : queue_) {
    // Nothing of the caller's is written where members disagreed.
    if (mismatched == 0 || operation->number < mismatched) fill_with_nan(operation->request);
  }
}

// Claims that were begun before the abort are waited for; none begins after it. Threads of this process always come to
// an end of theirs; another process may be stopped: then it keeps the retired arena to itself.
void MemberState::drain() {
  const auto start = Clock::now();
  for (int rank = 0; rank < members(); ++rank) {
    while (control_.rank(rank).in_flight.value.load() > 0) {
      {
        const std::lock_guard lock(watch_mutex_);
        const bool same = watch_.same_process(rank);
        if (!same && watch_.died(rank)) break;  // one that has left may still be in a piece
        if (!same && seconds_since(start) > kDrain) {
          segments_.disown();
          log::warning("rank {}: {} does not finish what it is summing; its writes are kept out", rank_, name(rank));
          return;
        }
      }
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
}

}  // namespace sumpter::exchange
