#include "c10d/work.h"

#include <fmt/format.h>

#include "base/clock.h"
#include "c10d/errors.h"

namespace sumpter {
namespace {

bool one_list(const std::vector<std::vector<at::Tensor>>& outputs) { return outputs.size() <= 1; }

c10::TypePtr type_of(const std::vector<std::vector<at::Tensor>>& outputs) {
  const c10::TypePtr tensors = c10::ListType::create(c10::TensorType::get());
  return one_list(outputs) ? tensors : c10::ListType::create(tensors);
}

c10::IValue value_of(const std::vector<std::vector<at::Tensor>>& outputs) {
  if (outputs.empty()) return std::vector<at::Tensor>();
  return one_list(outputs) ? c10::IValue(outputs.front()) : c10::IValue(outputs);
}

template <typename Value>
void complete(const Task& done, c10::ivalue::Future& future, const Value& value) {
  if (done.error() != nullptr) {
    future.setError(done.error());
  } else {
    future.markCompleted(value());
  }
}

}  // namespace

TaskWork::TaskWork(WorkDescription description, std::shared_ptr<Task> task, std::shared_ptr<Completer> completer)
    : Work(description.rank, description.kind, description.title, description.inputs),
      description_(std::move(description)),
      task_(std::move(task)),
      completer_(std::move(completer)) {}

TaskWork::~TaskWork() {
  if (!task_->done() && future_ == nullptr) completer_->adopt(task_);
  ended();
}

void TaskWork::ended() {
  std::call_once(ended_, [this] { finish(task_->done() ? task_->error() : nullptr); });
}

bool TaskWork::isCompleted() {
  if (!task_->test()) return false;
  ended();
  return true;
}

bool TaskWork::isSuccess() const { return task_->done() && task_->error() == nullptr; }

std::exception_ptr TaskWork::exception() const { return task_->done() ? task_->error() : nullptr; }

std::vector<at::Tensor> TaskWork::result() {
  TORCH_CHECK(isCompleted(), "sumpter: the result of an operation that is not finished: wait() first");
  std::vector<at::Tensor> tensors;
  for (const auto& list : description_.outputs) tensors.insert(tensors.end(), list.begin(), list.end());
  return tensors;
}

bool TaskWork::wait(std::chrono::milliseconds timeout) {
  if (timeout == kNoTimeout) {
    task_->wait();
  } else if (!task_->wait_for(timeout)) {
    throw backend_error(fmt::format("wait() gave up after {:.1f} s, and the operation goes on: {}",
                                    Seconds(timeout).count(), task_->pending()));
  }
  ended();
  if (task_->error() != nullptr) std::rethrow_exception(task_->error());
  return true;
}

c10::intrusive_ptr<c10::ivalue::Future> TaskWork::getFuture() {
  const std::lock_guard lock(future_mutex_);
  if (future_ == nullptr) {
    future_ = c10::make_intrusive<c10::ivalue::Future>(type_of(description_.outputs));
    const auto value = [outputs = description_.outputs] { return value_of(outputs); };
    if (task_->done()) {
      complete(*task_, *future_, value);
    } else {
      completer_->add(task_, [future = future_, value](Task& done) { complete(done, *future, value); });
    }
  }
  return future_;
}

}  // namespace sumpter
