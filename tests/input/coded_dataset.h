// A data set whose images say which item they are, in which epoch; it can throw at an item, and hold up its readers.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <mutex>

#include "sumpter/input.h"

namespace sumpter {

struct CodedImage {
  std::uint64_t index = 0, epoch = 0;
  bool operator==(const CodedImage&) const = default;
};

// Readers wait at it until it is opened.
class Gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    is_open_ = true;
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return is_open_; });
    --waiting_;
  }
  void await_waiting(int threads) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waiting_ == threads; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_open_ = false;
  int waiting_ = 0;
};

class CodedDataset : public Dataset {
 public:
  explicit CodedDataset(std::size_t rows, std::function<void(std::size_t index)> before = {})
      : rows_(rows), before_(std::move(before)) {}

  std::size_t size() const override { return rows_; }
  ImageShape shape() const override { return {.channels = 1, .height = 2, .width = sizeof(std::uint64_t)}; }
  int classes() const override { return 10; }
  std::int64_t get(const Item& item, std::span<std::uint8_t> image) const override {
    if (before_) before_(item.index);
    const CodedImage coded{.index = item.index, .epoch = item.epoch};
    std::memcpy(image.data(), &coded, sizeof(coded));
    ++reads_;
    return static_cast<std::int64_t>(item.index % 10);
  }

  std::size_t reads() const { return reads_; }

 private:
  const std::size_t rows_;
  const std::function<void(std::size_t)> before_;
  mutable std::atomic<std::size_t> reads_ = 0;
};

}  // namespace sumpter
