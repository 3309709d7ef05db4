// The thread of a group that completes futures, and operations whose handle was dropped: torch's futures cannot be
// waited for in a way that does the work, so somebody else has to.
#pragma once

#include <functional>
#include <memory>
#include <thread>

#include "c10d/task.h"

namespace sumpter {

// Who sums while the caller computes. background: the group's reducers and this thread, as soon as there is something.
// waiting: whoever waits; this thread waits for what has a future, and does not displace a caller that
// computes.
enum class Reductions { background, waiting };

// Any thread may call.
class Completer {
 public:
  explicit Completer(Reductions reductions);
  Completer(const Completer&) = delete;
  Completer& operator=(const Completer&) = delete;
  ~Completer();

  // Calls `done` once the task is; in the calling thread, before it returns, where that is the completer's own: a
  // callback that waits for another future.
  void add(std::shared_ptr<Task> task, std::function<void(Task&)> done);
  // A task that its caller will wait for, sooner or later: whoever does something else for longer than a moment must
  // not hold up the other ranks.
  void drive(std::shared_ptr<Task> task);
  // A task that nobody will wait for; its error goes to the log.
  void adopt(std::shared_ptr<Task> task);

  bool busy() const;
  // Completes what is there and ends the thread. Tasks end by their time limits at the latest.
  void finish();

 private:
  struct Queue;

  std::shared_ptr<Queue> queue_;  // the thread's too: a callback of a future may be the last to let go of this
};

}  // namespace sumpter
