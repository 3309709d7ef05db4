#include "train/user_network.h"

#include <torch/nn/functional/loss.h>

#include "base/error.h"

namespace sumpter {
namespace {

class UserNetwork : public Network {
 public:
  UserNetwork(TrainerModel model, const UserNetworkOptions& options) : model_(std::move(model)), options_(options) {
    lay_out(UserNetwork::state(), options_.precision, "the trainer's factory");
  }

  std::vector<NamedTensor> state() const override { return without_repeats(state_of(*model_.module)); }

  torch::Tensor loss(const torch::Tensor& values, const torch::Tensor& labels) override {
    model_.module->train();
    if (gate_) gate_(nullptr);
    const Bf16Autocast autocast(options_.precision == Precision::bf16);
    const torch::Tensor outputs = model_.forward(values);
    if (options_.loss) return options_.loss(outputs, labels);
    return cross_entropy(outputs, labels, {.label_smoothing = options_.label_smoothing});
  }

  torch::Tensor scores(const torch::Tensor& values) override {
    const torch::NoGradGuard no_grad;
    model_.module->eval();
    if (gate_) gate_(nullptr);
    const Bf16Autocast autocast(options_.precision == Precision::bf16);
    return widened(model_.forward(values));
  }

  void set_gate(Gate gate) override { gate_ = std::move(gate); }
  const std::shared_ptr<torch::nn::Module>& module() const { return model_.module; }

 private:
  TrainerModel model_;
  UserNetworkOptions options_;
  Gate gate_;
};

}  // namespace

std::unique_ptr<Network> make_user_network(TrainerModel model, const UserNetworkOptions& options) {
  if (model.module == nullptr || !model.forward)
    raise<RequestError>("the trainer's factory returned a model without {}", model.module ? "forward" : "module");
  for (const auto& parameter : model.module->named_parameters())
    if (parameter.value().scalar_type() != torch::kFloat32)
      raise<RequestError>("parameter '{}' has type {}: parameters are float32 when the factory makes them",
                          parameter.key(), torch::toString(parameter.value().scalar_type()));
  return std::make_unique<UserNetwork>(std::move(model), options);
}

std::shared_ptr<torch::nn::Module> module_of(const Network& network) {
  const auto* user = dynamic_cast<const UserNetwork*>(&network);
  return user == nullptr ? nullptr : user->module();
}

}  // namespace sumpter
