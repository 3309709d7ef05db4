// One copy of the model and its side of a step: forward, loss, backward. Gradients are announced to the step as
// autograd leaves them, and are dropped after it, so that autograd hands over fresh ones: no pass zeroes or copies
// them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "input/dataset.h"
#include "step/step.h"
#include "train/model.h"

namespace sumpter {

// Rows as the host has them.
struct Rows {
  std::span<const std::uint8_t> images;  // one after another
  std::span<const std::int64_t> labels;
  ImageShape shape;  // of each image
};

// The sums over some rows.
struct Score {
  double loss = 0;
  std::uint64_t right = 0;  // rows whose highest score is their label's
};

// Used by one thread, in this order: forward, finish, backward, for each step; finish once more at the end.
class Replica {
 public:
  // Hooks itself into the model, which it owns from now on, and whose parameters lie where they will stay.
  Replica(std::shared_ptr<Model> model, StepContext& context, Exchange& exchange);
  ~Replica();
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  // The mean loss over the rows, while the step before still updates parameters: waits for each layer's. The rows are
  // not needed any more afterwards. Without rows it does nothing and the loss is 0.
  double forward(const Rows& rows);
  // Waits for the end of the step before and drops its gradients.
  void finish();
  // Begins the exchange of the last forward's gradients while they come.
  void backward();
  // Changes nothing. After finish.
  Score evaluate(const Rows& rows);

  const ReplicaStep& step() const { return step_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }

 private:
  class GradientHook;

  void wait_for(const torch::nn::Module& layer);
  void gradient_final(int parameter);

  std::shared_ptr<Model> model_;
  std::vector<Parameter> parameters_;
  ReplicaStep step_;
  std::uint64_t rows_ = 0;
  torch::Tensor loss_;  // of the forward whose backward is to come
};

// A model for each replica of the plan, all with the same numbers; with update=host they share their parameters'
// memory.
std::vector<std::shared_ptr<Model>> make_models(const ModelSpec& spec, std::uint64_t seed, const Plan& plan);
// For replicas of such models.
std::unique_ptr<StepContext> make_context(const Model& model, const Plan& plan, const kernels::Sgd& optimizer);

// The mean loss of the model over the rows, 1 or more; what autograd needs is kept.
torch::Tensor mean_loss(Model& model, const Rows& rows);

// Addresses of the parameters' data, in their order.
std::vector<float*> addresses_of(const std::vector<Parameter>& parameters);

}  // namespace sumpter
