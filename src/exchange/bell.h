// Waiting without losing a signal and without burning a core that somebody else needs.
//
// Who signals stores its word with a sequentially consistent exchange and then looks for sleepers; who waits says that
// it sleeps, sequentially consistent, and then looks at the word once more. One of the two sees the other.
#pragma once

#include <chrono>

#include "base/clock.h"
#include "exchange/control.h"

namespace sumpter::exchange {

// Stores the signal so that ring() afterwards misses nobody.
inline void signal(std::atomic<std::uint64_t>& word, std::uint64_t value) { word.exchange(value); }

// Wakes all that sleep at the bell. Cheap when nobody does.
void ring(Bell& bell);

// Sleeps until the bell has rung since its epoch was read, or for no reason; the caller has counted itself as a
// sleeper.
void sleep_until_rung(Bell& bell, std::uint32_t epoch);

// Sleeps until `over` says so, however long that takes: whatever it looks at is stored before the bell is rung.
template <typename Over>
void sleep_until(Bell& bell, Over&& over) {
  bell.sleepers.fetch_add(1);
  while (true) {
    const std::uint32_t epoch = bell.epoch.load();
    if (over()) break;
    sleep_until_rung(bell, epoch);
  }
  bell.sleepers.fetch_sub(1);
}

// What past waits have taught: how long to spin (long while that succeeds, short after it fails), and whether to yield
// (not for a while after a yield that took a time slice: others compute on this core, and a sleeper is woken sooner
// than one who queues behind them). One for each waiting thread or member.
class Patience {
 public:
  unsigned spins() const { return spins_.load(std::memory_order_relaxed); }
  void spinning_succeeded();
  void spinning_failed();
  // Asked once a wait, when spinning has failed.
  bool may_yield();
  void yield_was_slow();

 private:
  std::atomic<unsigned> spins_{256};
  std::atomic<unsigned> waits_without_yield_{0};
};

// One wait: spins, then yields, then sleeps at the bell for bounded times that grow.
class Waiter {
 public:
  Waiter(Bell& bell, Patience& patience) : bell_(bell), patience_(patience) {}

  // Passes some time, and sleeps until `latest` at most. Returns true when it has slept: the moment to look at clocks
  // and members. `again` is called once more before sleeping and tells whether there is something to do after all.
  template <typename Again>
  bool pause(Again&& again, Clock::time_point latest = Clock::time_point::max()) {
    if (spins_ < patience_.spins()) {
      spin();
      return false;
    }
    if (yields_ < kYields && yield()) return false;
    bell_.sleepers.fetch_add(1);
    const std::uint32_t epoch = bell_.epoch.load();
    const bool ready = again();
    if (!ready) sleep(epoch, latest);
    bell_.sleepers.fetch_sub(1);
    return true;
  }
  // Something was done: begin anew.
  void progressed();

 private:
  static constexpr unsigned kYields = 40;
  static constexpr std::chrono::microseconds kShortest{500}, kLongest{20'000};

  void spin();
  bool yield();  // false when it is better not to
  void sleep(std::uint32_t epoch, Clock::time_point latest);

  Bell& bell_;
  Patience& patience_;
  unsigned spins_ = 0, yields_ = 0;
  std::chrono::microseconds nap_ = kShortest;
};

}  // namespace sumpter::exchange
