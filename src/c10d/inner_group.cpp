#include "c10d/inner_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <random>

#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"
#include "c10d/errors.h"

namespace sumpter {
namespace {

// For all members to make the group. They are called in an instant, so this is long; but none may hang on one that has
// died.
constexpr std::chrono::milliseconds kMaking{20'000};

// How often who waits for Gloo, or for its thread, looks at the members.
constexpr std::chrono::milliseconds kGlance{100};

// How long a member that Gloo has lost is looked for, so that the error can name it.
constexpr std::chrono::milliseconds kLook{500};

// Of this group alone, on all members.
std::string own_prefix(Exchange& exchange) {
  std::random_device source;
  std::uint64_t number = std::uint64_t{source()} << 32 | source();
  exchange.broadcast({&number, 1}, ElementType::i64, 0);
  return fmt::format("gloo/{:016x}", number);
}

}  // namespace

// What Gloo cannot say: who has died. Nobody, once the group has been left.
class InnerGroup::Members {
 public:
  explicit Members(const Exchange& exchange) : exchange_(&exchange) {}
  void leave() {
    const std::lock_guard lock(mutex_);
    exchange_ = nullptr;
  }
  // Throws as Exchange::check.
  void check() const {
    const std::lock_guard lock(mutex_);
    if (exchange_ != nullptr) exchange_->check();
  }
  // What Gloo threw, or, where a member has died, that: it is the better answer.
  std::exception_ptr explain(const std::string& label, const std::exception_ptr& error) const {
    const auto deadline = Clock::now() + kLook;
    try {
      while (Clock::now() < deadline) {
        check();
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
    } catch (...) {
      return for_torch(std::current_exception());
    }
    try {
      std::rethrow_exception(error);
    } catch (const c10::Error& known) {
      return std::make_exception_ptr(backend_error(label + ", through Gloo: " + known.what_without_backtrace()));
    } catch (const std::exception& known) {
      return std::make_exception_ptr(backend_error(label + ", through Gloo: " + known.what()));
    } catch (...) {
      return error;
    }
  }

 private:
  mutable std::mutex mutex_;
  const Exchange* exchange_;
};

// A collective in the queue. Waiters sleep: the inner group's thread does it.
class InnerGroup::Job : public Task {
 public:
  Job(std::shared_ptr<const Members> members, Work announcement, std::string label, Begin begin,
      std::function<void()> after)
      : members_(std::move(members)),
        announcement_(std::move(announcement)),
        label_(std::move(label)),
        begin_(std::move(begin)),
        after_(std::move(after)) {}

  bool test() override { return done(); }
  void wait() override {
    while (!sleep_for(kGlance)) glance();
  }
  bool wait_for(std::chrono::milliseconds duration) override {
    const auto deadline = Clock::now() + duration;
    while (true) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
      if (sleep_for(std::clamp(left, std::chrono::milliseconds(0), kGlance))) return true;
      if (left.count() <= 0) return false;
      glance();
    }
  }
  std::string pending() const override {
    const std::string waits = announcement_.pending();
    return waits.empty() ? label_ + ", through Gloo" : waits;
  }

  // `backend` is called once all members agree.
  void run(const std::function<c10d::Backend&()>& backend) {
    if (done()) return;
    try {
      announcement_.wait();
    } catch (...) {
      end(for_torch(std::current_exception()));
      return;
    }
    try {
      begin_(backend())->wait();
      if (after_) after_();
      end(nullptr);
    } catch (...) {
      end(members_->explain(label_, std::current_exception()));
    }
  }

  // Gloo's thread may be busy with a member that has died: who waits is told at once.
  void glance() {
    try {
      members_->check();
    } catch (...) {
      end(for_torch(std::current_exception()));
    }
  }
  bool sleep_for(std::chrono::milliseconds duration) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, duration, [&] { return done(); });
  }

  void end(std::exception_ptr error) {
    {
      const std::lock_guard lock(mutex_);
      finish(std::move(error));
    }
    changed_.notify_all();
  }

 private:
  const std::shared_ptr<const Members> members_;
  Work announcement_;
  const std::string label_;
  const Begin begin_;
  const std::function<void()> after_;
  std::mutex mutex_;
  std::condition_variable changed_;
};

// Something that Gloo has begun.
class InnerGroup::Transfer : public Task {
 public:
  Transfer(std::shared_ptr<const Members> members, std::string label, c10::intrusive_ptr<c10d::Work> work,
           std::function<void()> after)
      : members_(std::move(members)), label_(std::move(label)), work_(std::move(work)), after_(std::move(after)) {}

  bool test() override {
    if (done() || !work_->isCompleted()) return done();
    wait();
    return true;
  }
  void wait() override { wait_with(kNoTimeout); }
  bool wait_for(std::chrono::milliseconds duration) override {
    wait_with(duration);
    return done();
  }
  std::string pending() const override { return label_ + ", through Gloo"; }
  int source() const override { return work_->sourceRank(); }

 private:
  void wait_with(std::chrono::milliseconds timeout) {
    const std::lock_guard lock(mutex_);
    if (done()) return;
    try {
      work_->wait(timeout);
      if (after_) after_();
      finish(nullptr);
    } catch (...) {
      finish(members_->explain(label_, std::current_exception()));
    }
  }

  const std::shared_ptr<const Members> members_;
  const std::string label_;
  const c10::intrusive_ptr<c10d::Work> work_;
  const std::function<void()> after_;
  std::mutex mutex_;
};

InnerGroup::InnerGroup(Exchange& exchange, Make make, std::chrono::milliseconds time_limit)
    : exchange_(exchange),
      members_(std::make_shared<Members>(exchange)),
      make_(std::move(make)),
      time_limit_(time_limit),
      prefix_(own_prefix(exchange)),
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

InnerGroup::~InnerGroup() {
  thread_.request_stop();
  thread_.join();
  members_->leave();
}

bool InnerGroup::made() const {
  const std::lock_guard lock(mutex_);
  return backend_ != nullptr;
}

void InnerGroup::run(const std::stop_token& stop) {
  name_this_thread("inner-gloo");
  const bool called = exchange_.wait_until_called(stop);
  if (called) {
    c10::intrusive_ptr<c10d::Backend> backend;
    std::exception_ptr failure;
    try {
      backend = make_(prefix_, std::min(time_limit_, kMaking));
      backend->setTimeout(time_limit_);
    } catch (...) {
      failure = members_->explain("making the inner Gloo group", std::current_exception());
    }
    const std::lock_guard lock(mutex_);
    backend_ = std::move(backend);
    failure_ = failure;
  }
  changed_.notify_all();
  while (true) {
    std::shared_ptr<Job> job;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, stop, [&] { return !jobs_.empty(); });
      if (jobs_.empty()) return;  // asked to stop
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    job->run([this]() -> c10d::Backend& { return backend(); });
  }
}

// Blocks until the thread has made it. Throws why it could not.
c10d::Backend& InnerGroup::backend() {
  exchange_.call();
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kGlance, [&] { return backend_ != nullptr || failure_; })) {
    lock.unlock();
    exchange_.check();  // a member that has died will never make its end
    lock.lock();
  }
  if (failure_) std::rethrow_exception(failure_);
  return *backend_;
}

std::shared_ptr<Task> InnerGroup::collective(Work announcement, std::string label, Begin begin,
                                             std::function<void()> after) {
  auto job =
      std::make_shared<Job>(members_, std::move(announcement), std::move(label), std::move(begin), std::move(after));
  exchange_.call();
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(job);
  }
  changed_.notify_all();
  return job;
}

std::shared_ptr<Task> InnerGroup::point_to_point(std::string label, const Begin& begin, std::function<void()> after) {
  c10d::Backend& gloo = with_torch_errors([&]() -> c10d::Backend& { return backend(); });
  try {
    return std::make_shared<Transfer>(members_, label, begin(gloo), std::move(after));
  } catch (...) {
    std::rethrow_exception(members_->explain(label, std::current_exception()));
  }
}

}  // namespace sumpter
