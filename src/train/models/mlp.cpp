// Linear layers with ReLU between: nothing but matrix products, so that it is all communication where layers are wide.
#include <ATen/ops/relu.h>
#include <torch/nn/modules/linear.h>

#include "train/models/families.h"

namespace sumpter {
namespace {

namespace nn = torch::nn;

class Mlp : public Model {
 public:
  explicit Mlp(const std::vector<std::int64_t>& sizes) {
    for (std::size_t i = 1; i < sizes.size(); ++i)
      layers_.push_back(register_module("fc" + std::to_string(i), nn::Linear(sizes[i - 1], sizes[i])));
  }
  torch::Tensor forward(const torch::Tensor& values) override {
    auto x = values.flatten(1);
    for (auto& layer : layers_) {
      x = apply(layer, x);
      if (&layer != &layers_.back()) x = at::relu(x);
    }
    return x;
  }

 private:
  std::vector<nn::Linear> layers_;
};

}  // namespace

std::shared_ptr<Model> make_mlp(const ModelSpec& spec) { return std::make_shared<Mlp>(spec.sizes); }

}  // namespace sumpter
