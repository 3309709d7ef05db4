// Caffe's LeNet: no activation after the convolutions.
#include <ATen/ops/relu.h>
#include <torch/nn/modules/linear.h>

#include "train/models/families.h"
#include "train/models/layers.h"

namespace sumpter {
namespace {

namespace nn = torch::nn;

class Lenet : public Model {
 public:
  torch::Tensor forward(const torch::Tensor& values) override {
    auto x = max_pool(apply(conv1_, values), {});
    x = max_pool(apply(conv2_, x), {});
    x = at::relu(apply(fc1_, x.flatten(1)));
    return apply(fc2_, x);
  }

 private:
  nn::Conv2d conv1_ = register_module("conv1", make_conv({.in = 1, .out = 20, .kernel = 5}, /*bias=*/true));
  nn::Conv2d conv2_ = register_module("conv2", make_conv({.in = 20, .out = 50, .kernel = 5}, /*bias=*/true));
  nn::Linear fc1_ = register_module("fc1", nn::Linear(800, 500));
  nn::Linear fc2_ = register_module("fc2", nn::Linear(500, 10));
};

}  // namespace

std::shared_ptr<Model> make_lenet() { return std::make_shared<Lenet>(); }

}  // namespace sumpter
