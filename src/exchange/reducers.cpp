// Reducer threads: what they do all day, and how they are paused.
#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"
#include "exchange/member.h"

namespace sumpter::exchange {

void MemberState::reduce_until(const std::stop_token& stop, std::size_t index, Tally& tally) {
  name_this_thread("reducer");
  if (const auto& cores = group_->options().reducer_cores; !cores.empty()) {
    try {
      bind_this_thread(cores[index % cores.size()]);
    } catch (const SystemError& error) {  // the core was usable when the options were checked
      log::warning("rank {}: reducer {} runs where the system puts it: {}", rank_, index, error.what());
    }
  }
  Patience patience;
  Waiter waiter(own().reducers, patience);
  const auto over = [&] { return stop.stop_requested() || aborted(control_); };
  while (!over()) {
    if (paused_.load()) {
      sleep_while_paused(stop);
    } else if (progress(tally, By::reducer)) {
      waiter.progressed();
    } else {
      waiter.pause([&] { return over() || paused_.load() || progress(tally, By::reducer); });
    }
  }
}

// Not at the bell, which rings for work: until it is unpaused, or stopped.
void MemberState::sleep_while_paused(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  unpaused_.wait(lock, stop, [&] { return !paused_.load(); });
}

void MemberState::pause_reducers(bool paused) {
  {
    // Under the lock, so that no reducer takes up an operation that is begun after this.
    const std::lock_guard lock(mutex_);
    paused_.store(paused);
  }
  unpaused_.notify_all();
  ring(own().reducers);
}

}  // namespace sumpter::exchange
