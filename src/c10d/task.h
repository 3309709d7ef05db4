// One operation of the backend under way, wherever it is waited for: in Work.wait, by the thread that completes
// futures, or by nobody.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "sumpter/exchange.h"

namespace sumpter {

// Any thread may call, several at once. Nothing here throws what the operation failed with: error() has it, as torch is
// to see it.
class Task {
 public:
  Task() = default;
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  virtual ~Task() = default;

  bool done() const { return done_.load(std::memory_order_acquire); }
  // Of a task that is done; null where it succeeded.
  std::exception_ptr error() const { return error_; }

  // Does what can be done without blocking. Returns done().
  virtual bool test() = 0;
  // Blocks until it is done.
  virtual void wait() = 0;
  // Blocks so long at most. Returns done().
  virtual bool wait_for(std::chrono::milliseconds duration) = 0;
  // What it waits for at this moment, for messages.
  virtual std::string pending() const = 0;
  // Who sent what a receive that is done has received; -1 where nobody did.
  virtual int source() const { return -1; }

 protected:
  // The first call counts.
  void finish(std::exception_ptr error);

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
  std::atomic<bool> done_{false};
};

// Operations of the exchange, finished by whoever waits, and what is left to do after them.
class ExchangeTask : public Task {
 public:
  // `after` runs once, when all operations have succeeded; it keeps alive what they read and write. Without a time
  // limit the group's counts.
  ExchangeTask(std::vector<Work> works, std::function<void()> after, std::chrono::milliseconds time_limit)
      : works_(std::move(works)), after_(std::move(after)), time_limit_(time_limit) {}

  bool test() override;
  void wait() override;
  bool wait_for(std::chrono::milliseconds duration) override;
  std::string pending() const override;

 private:
  template <typename Step>
  bool attempt(Step&& step);

  mutable std::vector<Work> works_;
  std::mutex after_mutex_;
  std::function<void()> after_;
  const std::chrono::milliseconds time_limit_;
};

}  // namespace sumpter
