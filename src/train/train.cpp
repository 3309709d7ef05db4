#include "train/train.h"

#include <cmath>
#include <thread>

#include "base/error.h"
#include "train/memory.h"
#include "train/run.h"
#include "train/weights.h"

namespace sumpter {
namespace {

void check(const TrainOptions& options) {
  validate(options.plan);
  if (options.plan.gradient_wire != WireFormat::f32 || options.plan.parameter_wire != WireFormat::f32)
    raise<RequestError>(
        "gradient_wire {}, parameter_wire {}: replicas on device cpu share the host's memory, nothing "
        "travels between them that could be made smaller; both must be f32",
        name_of(options.plan.gradient_wire), name_of(options.plan.parameter_wire));
  if ((options.epochs == 0) == (options.steps == 0))
    raise<RequestError>("a run has a number of epochs or a number of steps: {} epochs and {} steps were given",
                        options.epochs, options.steps);
  if (options.batch_size == 0) raise<RequestError>("batch size: 0 rows; the smallest is 1");
  if (options.threads_per_replica < 1)
    raise<RequestError>("threads per replica: {} were given; the smallest number is 1", options.threads_per_replica);
  if (options.data.train == nullptr || options.data.train->size() == 0)
    raise<RequestError>("there is no data to train on");
  check_input(options.model, options.data.train->shape(), options.data.train->classes());
  if (options.data.test != nullptr)
    check_input(options.model, options.data.test->shape(), options.data.test->classes());
  if (!options.weights.empty()) require_writable(options.weights);
}

std::vector<NamedArray> arrays_of(const Model& model) {
  std::vector<NamedArray> arrays;
  for (const Parameter& parameter : parameters_of(model)) {
    const torch::Tensor& tensor = parameter.tensor;
    arrays.push_back({parameter.name,
                      {tensor.sizes().begin(), tensor.sizes().end()},
                      {tensor.const_data_ptr<float>(), static_cast<std::size_t>(tensor.numel())}});
  }
  return arrays;
}

void count(Run& run) {
  RunResult& result = run.result;
  const auto replicas = static_cast<double>(run.outcomes.size());
  for (const ReplicaOutcome& outcome : run.outcomes) {
    result.share_exchange += outcome.share_exchange / replicas;
    result.share_input += outcome.share_input / replicas;
  }
  const auto add = [&](const WorkerCounters& worker, std::vector<std::uint64_t>& pieces) {
    pieces.push_back(worker.pieces);
    result.pieces += worker.pieces;
    result.bytes += worker.bytes;
  };
  for (const auto& exchange : run.exchanges) add(exchange->counters().own, result.pieces_of_replicas);
  for (const WorkerCounters& reducer : run.group.reducer_counters()) add(reducer, result.pieces_of_reducers);
  result.parameters = run.options.model.parameters();
  result.chunks_per_step = run.context->chunks().size();
  result.chunks = run.outcomes.front().chunks;
  result.most_batches_ready = run.ring.counters().ready_most;
}

std::unique_ptr<Run> make_run(const TrainOptions& options, TrainListener& listener, const std::atomic<bool>& stop) {
  try {
    return std::make_unique<Run>(options, listener, stop);
  } catch (const c10::Error& error) {
    raise<Error>("{} replicas of the model cannot be made: {}", options.plan.replicas, error.what_without_backtrace());
  }
}

}  // namespace

RunResult train(const TrainOptions& options, TrainListener& listener, const std::atomic<bool>& stop) {
  check(options);
  keep_freed_memory();
  const std::unique_ptr<Run> made = make_run(options, listener, stop);
  Run& run = *made;
  {
    std::vector<std::jthread> threads;
    try {
      while (threads.size() < run.models.size())
        threads.emplace_back([&run, rank = static_cast<int>(threads.size())] { run.run_replica(rank); });
    } catch (...) {  // no more threads: those that there are would wait for the others
      run.fail(static_cast<int>(threads.size()), std::current_exception());
    }
  }
  run.rethrow();
  if (!std::isfinite(run.result.loss))
    raise<Error>("the loss of step {} is {}: training ended there. A smaller learning rate may help (it was {})",
                 run.result.steps - 1, run.result.loss, options.optimizer.learning_rate);
  count(run);
  const std::vector<NamedArray> arrays = arrays_of(*run.models.front());
  if (options.digest) run.result.digest = digest(arrays);
  if (!options.weights.empty()) write_safetensors(arrays, options.weights);
  return run.result;
}

}  // namespace sumpter
