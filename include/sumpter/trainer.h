// Trainer: whole training runs of your own torch::nn module on several replicas of one process. examples/trainer.cpp is
// one in forty lines. The only public header that sees torch.
#pragma once

#include <torch/nn/module.h>

#include <atomic>
#include <functional>
#include <memory>

#include "sumpter/train.h"

namespace sumpter {

// One replica's copy of your model. All parameters that require a gradient must be used in the loss.
struct TrainerModel {
  std::shared_ptr<torch::nn::Module> module;
  std::function<torch::Tensor(const torch::Tensor& inputs)> forward;  // of that module
};

// Called once for each replica, one at a time; the numbers of the first one go to all.
using ModelFactory = std::function<TrainerModel()>;

// Makes Module(arguments...), which has a forward(torch::Tensor).
template <typename Module, typename... Arguments>
ModelFactory factory_of(Arguments... arguments) {
  return [arguments...] {
    auto module = std::make_shared<Module>(arguments...);
    return TrainerModel{module, [plain = module.get()](const torch::Tensor& inputs) { return plain->forward(inputs); }};
  };
}

// The mean over the rows, a scalar. `outputs` is what forward gave for the rows, `labels` int64 [rows].
using LossFunction = std::function<torch::Tensor(const torch::Tensor& outputs, const torch::Tensor& labels)>;

// The data set's rows reach forward as float tensors [rows, channels, height, width]: bytes scaled to -1..1, floats as
// they are. Random numbers that a module draws (dropout) come from torch's default generator, which replicas share: on
// several replicas such runs are not reproducible.
class Trainer {
 public:
  // An empty loss is torch's cross_entropy with options.label_smoothing.
  Trainer(ModelFactory factory, LossFunction loss, RunOptions options);
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;
  ~Trainer();

  // Each is called by rank 0's thread, while training waits. What they throw ends the run.
  void on_start(std::function<void(const RunStart&)> callback);
  void on_step(std::function<void(const StepReport&)> callback);
  void on_evaluation(std::function<void(const Evaluation&)> callback);
  void on_checkpoint(std::function<void(const std::filesystem::path& directory, std::uint64_t steps)> callback);

  // Blocks until the run has ended. Throws RequestError before anything has begun, DataError from the data, Error where
  // the loss is not finite, and what a callback, the data set or the module threw, with the replica's number. May be
  // called again: that is a new run from new parameters.
  RunResult run();
  // Ends run() after the step under way, with a checkpoint where there is a directory for it. From any thread.
  void stop() { stop_ = true; }
  // Rank 0's module with the final numbers, after run(); null before.
  std::shared_ptr<torch::nn::Module> module() const;

 private:
  class Callbacks;

  ModelFactory factory_;
  LossFunction loss_;
  RunOptions options_;
  std::unique_ptr<Callbacks> callbacks_;
  std::atomic<bool> stop_{false};
  std::shared_ptr<torch::nn::Module> module_;
};

}  // namespace sumpter
