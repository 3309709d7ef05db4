#include "c10d/task.h"

#include <algorithm>
#include <optional>

#include "base/clock.h"
#include "c10d/errors.h"

namespace sumpter {

void Task::finish(std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  if (done()) return;
  error_ = std::move(error);
  done_.store(true, std::memory_order_release);
}

// Goes through the operations; `step` returns false where one is not finished.
template <typename Step>
bool ExchangeTask::attempt(Step&& step) {
  if (done()) return true;
  try {
    for (Work& work : works_) {
      if (!step(work)) return false;
    }
    const std::lock_guard lock(after_mutex_);
    if (!done() && after_) std::exchange(after_, {})();
    finish(nullptr);
  } catch (...) {
    finish(for_torch(std::current_exception()));
  }
  return true;
}

bool ExchangeTask::test() {
  return attempt([](Work& work) { return work.test(); });
}

void ExchangeTask::wait() {
  attempt([&](Work& work) {
    work.wait(time_limit_);
    return true;
  });
}

bool ExchangeTask::wait_for(std::chrono::milliseconds duration) {
  const auto deadline = Clock::now() + duration;
  return attempt([&](Work& work) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    return work.wait_for(std::max(left, std::chrono::milliseconds(0)));
  });
}

std::string ExchangeTask::pending() const {
  for (Work& work : works_) {
    if (const std::string text = work.pending(); !text.empty()) return text;
  }
  return "an operation that is finished";
}

}  // namespace sumpter
