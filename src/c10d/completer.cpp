#include "c10d/completer.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"

namespace sumpter {
namespace {

constexpr std::chrono::milliseconds kMoment{2};

}  // namespace

struct Completer::Queue {
  struct Entry {
    std::shared_ptr<Task> task;
    std::function<void(Task&)> done;
    Clock::time_point due;  // not before
  };

  explicit Queue(Reductions who) : reductions(who) {}

  void add(Entry entry, const std::shared_ptr<Queue>& self);
  void run();
  // Takes the first entry that is due, once there is one. False when there are none left and this is to end.
  bool take(Entry& entry);

  const Reductions reductions;
  const pid_t process = getpid();
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Entry> entries;
  bool working = false;  // on an entry
  bool finishing = false;
  std::thread thread;      // started by the first task
  std::thread::id worker;  // it, for as long as it takes entries
};

Completer::Completer(Reductions reductions) : queue_(std::make_shared<Queue>(reductions)) {}

Completer::~Completer() {
  if (queue_->process == getpid()) {
    finish();
  } else {
    // A child of the process has no such thread, and its lock may be held for ever.
    static auto& abandoned = *new std::vector<std::shared_ptr<Queue>>;
    abandoned.push_back(std::move(queue_));
  }
}

void Completer::Queue::add(Entry entry, const std::shared_ptr<Queue>& self) {
  {
    std::unique_lock lock(mutex);
    if (worker == std::this_thread::get_id()) {
      lock.unlock();
      entry.task->wait();
      entry.done(*entry.task);
      return;
    }
    entries.push_back(std::move(entry));
    // After finish() there is no thread any more; a late task gets one of its own kind.
    if (worker == std::thread::id()) {
      if (thread.joinable()) thread.detach();  // it has ended
      finishing = false;
      thread = std::thread([self] { self->run(); });
      worker = thread.get_id();
    }
  }
  changed.notify_one();
}

void Completer::add(std::shared_ptr<Task> task, std::function<void(Task&)> done) {
  queue_->add({std::move(task), std::move(done), Clock::time_point()}, queue_);
}

void Completer::drive(std::shared_ptr<Task> task) {
  queue_->add({std::move(task), [](Task&) {}, Clock::now() + kMoment}, queue_);
}

void Completer::adopt(std::shared_ptr<Task> task) {
  add(std::move(task), [](Task& done) {
    if (done.error() != nullptr) log::error("an operation that nobody waited for failed: {}", describe(done.error()));
  });
}

bool Completer::busy() const {
  const std::lock_guard lock(queue_->mutex);
  return queue_->working || !queue_->entries.empty();
}

void Completer::finish() {
  std::thread thread;
  {
    const std::lock_guard lock(queue_->mutex);
    queue_->finishing = true;
    thread = std::move(queue_->thread);
  }
  queue_->changed.notify_one();
  if (!thread.joinable()) return;
  if (thread.get_id() == std::this_thread::get_id()) {
    thread.detach();  // called from a future's callback; the thread ends once that returns
  } else {
    thread.join();
  }
}

void Completer::Queue::run() {
  name_this_thread("completer");
  if (reductions == Reductions::waiting && !run_as_batch()) {
    log::debug("the system refuses the scheduling class for batches; futures are completed in the usual one");
  }
  Entry entry;
  while (take(entry)) {
    entry.task->wait();
    try {
      entry.done(*entry.task);
    } catch (const std::exception& error) {
      // A callback of the user's that throws is its own future's affair; what comes out here is not expected.
      log::error("completing an operation failed: {}", error.what());
    }
    entry = {};  // what it keeps alive may be the last of something
  }
}

bool Completer::Queue::take(Entry& entry) {
  std::unique_lock lock(mutex);
  working = false;
  while (true) {
    std::erase_if(entries, [](const Entry& one) { return one.due != Clock::time_point() && one.task->done(); });
    const auto next =
        std::min_element(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.due < b.due; });
    if (next == entries.end()) {
      if (finishing) {
        worker = {};
        return false;
      }
      changed.wait(lock);
    } else if (!finishing && next->due > Clock::now()) {
      changed.wait_until(lock, next->due);
    } else {
      entry = std::move(*next);
      entries.erase(next);
      working = true;
      return true;
    }
  }
}

}  // namespace sumpter
