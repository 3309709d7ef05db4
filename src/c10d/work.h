// torch's handle of an operation: Work.wait, Work.get_future and the rest.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "c10d/completer.h"
#include "c10d/task.h"

namespace sumpter {

// What is said about an operation when it begins.
struct WorkDescription {
  int rank = 0;
  c10d::OpType kind = c10d::OpType::UNKNOWN;
  const char* title = "";  // "sumpter:all_reduce", in torch's profiler
  std::uint64_t sequence_number = 0;
  std::vector<at::Tensor> inputs;
  // As torch's own backends give them: one list of tensors, or one list for each input.
  std::vector<std::vector<at::Tensor>> outputs;
};

class TaskWork : public c10d::Work {
 public:
  TaskWork(WorkDescription description, std::shared_ptr<Task> task, std::shared_ptr<Completer> completer);
  // An operation that is not done goes on without the handle.
  ~TaskWork() override;

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override { return task_->source(); }
  std::vector<at::Tensor> result() override;
  void synchronize() override { wait(); }
  // Throws DistBackendError: what the operation failed with, or that it is not done within the timeout; then it goes on
  // and can be waited for again.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  std::uint64_t getSequencenumber() const override { return description_.sequence_number; }

 private:
  void ended();  // tells the base class, once

  const WorkDescription description_;
  const std::shared_ptr<Task> task_;
  const std::shared_ptr<Completer> completer_;
  std::once_flag ended_;
  std::mutex future_mutex_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace sumpter
