#include "train/memory.h"

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <malloc.h>

#include <algorithm>
#include <limits>
#include <mutex>
#include <unordered_map>

namespace sumpter {
namespace {

// What torch's CPU allocator tells of each allocation. Under a mutex: torch hands a thread's profiler on to threads
// that work for it.
class Count : public c10::MemoryReportingInfoBase {
 public:
  // `bytes` is negative when memory is freed.
  void reportMemoryUsage(void* address, std::int64_t bytes, std::size_t /*total_allocated*/,
                         std::size_t /*total_reserved*/, c10::Device device) override {
    if (!device.is_cpu()) return;
    const std::lock_guard lock(mutex_);
    const auto known = held_.find(address);
    if (known != held_.end()) {
      now_ -= known->second;
      held_.erase(known);
    }
    if (bytes <= 0) return;
    held_.emplace(address, static_cast<std::size_t>(bytes));
    now_ += static_cast<std::size_t>(bytes);
    peak_ = std::max(peak_, now_);
  }
  bool memoryProfilingEnabled() const override { return true; }

  std::size_t now() const {
    const std::lock_guard lock(mutex_);
    return now_;
  }
  std::size_t peak() const {
    const std::lock_guard lock(mutex_);
    return peak_;
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<void*, std::size_t> held_;  // bytes by address
  std::size_t now_ = 0, peak_ = 0;
};

}  // namespace

void keep_freed_memory() {
  // Only the main arena holds blocks of any size: those of other threads end at 64 MiB.
  mallopt(M_ARENA_MAX, 1);
  mallopt(M_MMAP_THRESHOLD, std::numeric_limits<int>::max());
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
}

struct MemoryWatch::State {
  std::shared_ptr<Count> count = std::make_shared<Count>();
  c10::DebugInfoGuard guard{c10::DebugInfoKind::PROFILER_STATE, count};
};

MemoryWatch::MemoryWatch() : state_(std::make_unique<State>()) {}
MemoryWatch::~MemoryWatch() = default;

std::size_t MemoryWatch::now() const { return state_->count->now(); }
std::size_t MemoryWatch::peak() const { return state_->count->peak(); }

}  // namespace sumpter
