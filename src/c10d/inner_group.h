// The Gloo group inside: for what the exchange does not do itself. It is made on first use, by all members: one that
// needs it calls the others.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "c10d/task.h"
#include "sumpter/exchange.h"

namespace sumpter {

class InnerGroup {
 public:
  // Makes it together with the other members, under a prefix of the store that no other group has, within the limit.
  using Make = std::function<c10::intrusive_ptr<c10d::Backend>(const std::string& prefix, std::chrono::milliseconds)>;
  using Begin = std::function<c10::intrusive_ptr<c10d::Work>(c10d::Backend&)>;

  // `exchange` outlives this. Collective. A thread sleeps until a member calls; `time_limit` is that of Gloo's
  // operations.
  InnerGroup(Exchange& exchange, Make make, std::chrono::milliseconds time_limit);
  InnerGroup(const InnerGroup&) = delete;
  InnerGroup& operator=(const InnerGroup&) = delete;
  ~InnerGroup();

  bool made() const;

  // A collective, done in the thread of the inner group, in the order of these calls. `announcement` is the exchange's
  // barrier with the same label on every member: where members disagree, it fails and the collective is not begun.
  std::shared_ptr<Task> collective(Work announcement, std::string label, Begin begin, std::function<void()> after);
  // A send or receive, begun here and now. Blocks until all members have made the group.
  std::shared_ptr<Task> point_to_point(std::string label, const Begin& begin, std::function<void()> after);

 private:
  class Members;
  class Job;
  class Transfer;

  c10d::Backend& backend();
  void run(const std::stop_token& stop);

  Exchange& exchange_;
  const std::shared_ptr<Members> members_;  // of tasks too, which may outlive this
  const Make make_;
  const std::chrono::milliseconds time_limit_;
  const std::string prefix_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  c10::intrusive_ptr<c10d::Backend> backend_;
  std::exception_ptr failure_;  // why it could not be made
  std::deque<std::shared_ptr<Job>> jobs_;
  std::jthread thread_;
};

}  // namespace sumpter
