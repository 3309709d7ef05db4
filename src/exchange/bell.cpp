#include "exchange/bell.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>

namespace sumpter::exchange {
namespace {

constexpr unsigned kFewestSpins = 8, kMostSpins = 4096;
constexpr std::chrono::microseconds kSlowYield{200};
constexpr unsigned kWaitsWithoutYield = 100;

// Shared futexes: the same words are waited for by several processes. A failure (a signal, a changed word, a time that
// has passed) is the same as a wake-up: the caller looks again.
void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected, const timespec* limit) {
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAIT, expected, limit, nullptr, 0);
}

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

void ring(Bell& bell) {
  if (bell.sleepers.load() == 0) return;
  bell.epoch.fetch_add(1);
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&bell.epoch), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void sleep_until_rung(Bell& bell, std::uint32_t epoch) { futex_wait(bell.epoch, epoch, nullptr); }

void Patience::spinning_succeeded() { spins_.store(std::min(spins() * 2, kMostSpins), std::memory_order_relaxed); }
void Patience::spinning_failed() { spins_.store(std::max(spins() / 2, kFewestSpins), std::memory_order_relaxed); }

bool Patience::may_yield() {
  const unsigned waits = waits_without_yield_.load(std::memory_order_relaxed);
  if (waits == 0) return true;
  waits_without_yield_.store(waits - 1, std::memory_order_relaxed);
  return false;
}
void Patience::yield_was_slow() { waits_without_yield_.store(kWaitsWithoutYield, std::memory_order_relaxed); }

void Waiter::spin() {
  ++spins_;
  relax();
}

bool Waiter::yield() {
  if (yields_ == 0) {
    patience_.spinning_failed();
    if (!patience_.may_yield()) {
      yields_ = kYields;
      return false;
    }
  }
  ++yields_;
  const auto start = Clock::now();
  sched_yield();
  if (Clock::now() - start > kSlowYield) {
    patience_.yield_was_slow();
    yields_ = kYields;
  }
  return true;
}

void Waiter::sleep(std::uint32_t epoch, Clock::time_point latest) {
  const auto left = std::chrono::ceil<std::chrono::microseconds>(latest - Clock::now());
  const auto nap = std::min(nap_, left).count();
  if (nap <= 0) return;
  const timespec limit{.tv_sec = static_cast<time_t>(nap / 1'000'000),
                       .tv_nsec = static_cast<long>(nap % 1'000'000 * 1000)};
  futex_wait(bell_.epoch, epoch, &limit);
  nap_ = std::min(nap_ * 2, kLongest);
}

void Waiter::progressed() {
  if (spins_ > 0 && yields_ == 0) patience_.spinning_succeeded();
  spins_ = yields_ = 0;
  nap_ = kShortest;
}

}  // namespace sumpter::exchange
