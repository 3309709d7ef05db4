#include "bench/ping.h"

#include <sched.h>

#include "base/clock.h"

namespace sumpter::bench {
namespace {

// Spins, and gives way now and then: both threads may be on one core.
void await(const std::atomic<std::uint32_t>& line, std::uint32_t value) {
  constexpr int kSpins = 2000;
  for (int spins = 0; line.load(std::memory_order_acquire) != value; ++spins) {
    if (spins == kSpins) {
      sched_yield();
      spins = 0;
    }
  }
}

}  // namespace

CacheLinePing::CacheLinePing() : other_([this] { answer(); }) {}

CacheLinePing::~CacheLinePing() {
  trips_.store(0, std::memory_order_relaxed);
  rallies_.fetch_add(1, std::memory_order_release);
  rallies_.notify_one();
  other_.join();
}

double CacheLinePing::measure(int round_trips) {
  line_.store(0, std::memory_order_relaxed);
  trips_.store(static_cast<std::uint32_t>(round_trips) + 1, std::memory_order_relaxed);
  rallies_.fetch_add(1, std::memory_order_release);
  rallies_.notify_one();

  // The first trip waits for the other thread to wake up, and is not counted.
  line_.store(1, std::memory_order_release);
  await(line_, 2);
  const auto start = Clock::now();
  for (std::uint32_t trip = 1; trip <= static_cast<std::uint32_t>(round_trips); ++trip) {
    line_.store(2 * trip + 1, std::memory_order_release);
    await(line_, 2 * trip + 2);
  }
  return seconds_since(start) / (2.0 * round_trips);
}

void CacheLinePing::answer() {
  for (std::uint32_t seen = 0;; ++seen) {
    rallies_.wait(seen, std::memory_order_acquire);
    const std::uint32_t trips = trips_.load(std::memory_order_relaxed);
    if (trips == 0) return;
    for (std::uint32_t trip = 0; trip < trips; ++trip) {
      await(line_, 2 * trip + 1);
      line_.store(2 * trip + 2, std::memory_order_release);
    }
  }
}

}  // namespace sumpter::bench
