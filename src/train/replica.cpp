#include "train/replica.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/functional/loss.h>
#include <torch/types.h>

#include <algorithm>

#include "base/error.h"

namespace sumpter {
namespace {

// float32 images in -1 to 1.
torch::Tensor to_images(const Rows& rows) {
  const auto sizes = {rows.labels.size(), rows.shape.channels, rows.shape.height, rows.shape.width};
  const std::vector<std::int64_t> shape(sizes.begin(), sizes.end());
  // from_blob takes no const pointer; the conversion that follows only reads.
  const auto bytes = torch::from_blob(const_cast<std::uint8_t*>(rows.images.data()), shape, torch::kUInt8);
  return bytes.to(torch::kFloat32).div_(255).sub_(0.5).div_(0.5);
}

torch::Tensor to_labels(const Rows& rows) {
  const auto count = static_cast<std::int64_t>(rows.labels.size());
  return torch::from_blob(const_cast<std::int64_t*>(rows.labels.data()), {count}, torch::kInt64).clone();
}

std::vector<float*> device_addresses(const StepContext& context, const std::vector<Parameter>& parameters) {
  return context.options().update == Update::device ? addresses_of(parameters) : std::vector<float*>();
}

}  // namespace

// What autograd calls when a parameter's gradient has been accumulated.
class Replica::GradientHook : public torch::autograd::PostAccumulateGradHook {
 public:
  GradientHook(Replica& replica, int parameter) : replica_(replica), parameter_(parameter) {}
  void operator()(const torch::autograd::Variable&) override { replica_.gradient_final(parameter_); }

 private:
  Replica& replica_;
  int parameter_;
};

Replica::Replica(std::shared_ptr<Model> model, StepContext& context, Exchange& exchange)
    : model_(std::move(model)),
      parameters_(parameters_of(*model_)),
      step_(context, exchange, device_addresses(context, parameters_)) {
  model_->set_gate([this](const torch::nn::Module& layer) { wait_for(layer); });
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    torch::autograd::impl::set_post_acc_grad_hooks(parameters_[i].tensor,
                                                   std::make_unique<GradientHook>(*this, static_cast<int>(i)));
  }
}

Replica::~Replica() {
  model_->set_gate({});
  for (const Parameter& parameter : parameters_)
    torch::autograd::impl::set_post_acc_grad_hooks(parameter.tensor, nullptr);
}

double Replica::forward(const Rows& rows) {
  rows_ = rows.labels.size();
  if (rows_ == 0) return 0;
  loss_ = mean_loss(*model_, rows);
  return loss_.item<float>();
}

void Replica::finish() {
  step_.finish();
  for (const Parameter& parameter : parameters_) parameter.tensor.mutable_grad().reset();
}

void Replica::backward() {
  step_.begin_step(rows_);
  if (rows_ != 0) std::exchange(loss_, {}).backward();
  step_.backward_done();
}

Score Replica::evaluate(const Rows& rows) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor labels = to_labels(rows);
  const torch::Tensor scores = model_->forward(to_images(rows));
  const auto sum = torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum);
  return {.loss = torch::nn::functional::cross_entropy(scores, labels, sum).item<float>(),
          .right = static_cast<std::uint64_t>(scores.argmax(1).eq(labels).sum().item<std::int64_t>())};
}

void Replica::wait_for(const torch::nn::Module& layer) {
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (parameters_[i].module == &layer) step_.wait_for_parameter(static_cast<int>(i));
}

void Replica::gradient_final(int parameter) {
  const Parameter& own = parameters_[static_cast<std::size_t>(parameter)];
  const torch::Tensor& gradient = own.tensor.mutable_grad();
  if (gradient.scalar_type() != torch::kFloat32 || !gradient.is_contiguous())
    raise<Error>("parameter '{}': autograd left a gradient that is not contiguous float32", own.name);
  step_.gradient_final(parameter, gradient.mutable_data_ptr<float>());
}

torch::Tensor mean_loss(Model& model, const Rows& rows) {
  return torch::nn::functional::cross_entropy(model.forward(to_images(rows)), to_labels(rows));
}

std::vector<std::shared_ptr<Model>> make_models(const ModelSpec& spec, std::uint64_t seed, const Plan& plan) {
  std::vector<std::shared_ptr<Model>> models;
  for (int rank = 0; rank < plan.replicas; ++rank) {
    models.push_back(make_model(spec, seed));
    if (plan.update == Update::device || rank == 0) continue;
    const std::vector<Parameter> shared = parameters_of(*models.front());
    const std::vector<Parameter> own = parameters_of(*models.back());
    for (std::size_t i = 0; i < own.size(); ++i) torch::Tensor(own[i].tensor).set_data(shared[i].tensor.detach());
  }
  return models;
}

std::unique_ptr<StepContext> make_context(const Model& model, const Plan& plan, const kernels::Sgd& optimizer) {
  const std::vector<Parameter> parameters = parameters_of(model);
  const bool host = plan.update == Update::host;
  return std::make_unique<StepContext>(describe(parameters),
                                       StepOptions{.chunk = plan.chunk, .update = plan.update, .optimizer = optimizer},
                                       host ? addresses_of(parameters) : std::vector<float*>());
}

std::vector<float*> addresses_of(const std::vector<Parameter>& parameters) {
  std::vector<float*> addresses;
  for (const Parameter& parameter : parameters) addresses.push_back(parameter.tensor.mutable_data_ptr<float>());
  return addresses;
}

}  // namespace sumpter
