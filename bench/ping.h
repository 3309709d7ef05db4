// How near two cores are to each other at the moment: the time that a cache line takes from one to the other. Virtual
// cores move, and what small messages cost moves with them.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

namespace sumpter::bench {

// Two threads, the caller's and one of its own, which sleeps between measurements. Not for use by several threads.
class CacheLinePing {
 public:
  CacheLinePing();
  CacheLinePing(const CacheLinePing&) = delete;
  CacheLinePing& operator=(const CacheLinePing&) = delete;
  ~CacheLinePing();

  // Seconds of a one-way trip, over `round_trips` there and back (at least 1). Blocks for about a tenth of a
  // millisecond.
  double measure(int round_trips = 200);

 private:
  void answer();

  alignas(64) std::atomic<std::uint32_t> line_{0};     // odd: on its way out; even: back home
  alignas(64) std::atomic<std::uint32_t> rallies_{0};  // moves on to wake the other thread
  std::atomic<std::uint32_t> trips_{0};                // round trips of this rally; 0 ends the thread
  std::thread other_;
};

}  // namespace sumpter::bench
