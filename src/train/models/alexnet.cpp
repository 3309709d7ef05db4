// AlexNet in the form of Krizhevsky's "One weird trick", as torchvision has it.
#include <ATen/ops/adaptive_avg_pool2d.h>
#include <torch/nn/modules/linear.h>

#include "train/models/families.h"
#include "train/models/layers.h"

namespace sumpter {
namespace {

namespace nn = torch::nn;

constexpr double kDropout = 0.5;
constexpr PoolShape kPool{.kernel = 3, .stride = 2};

class Alexnet : public Model {
 public:
  explicit Alexnet(std::int64_t classes) {
    const auto features = add_group(*this, "features");
    const auto add = [&](const char* name, const ConvShape& shape) {
      convolutions_.push_back(features->register_module(name, make_conv(shape, /*bias=*/true)));
    };
    add("0", {.in = 3, .out = 64, .kernel = 11, .stride = 4, .padding = 2});
    add("3", {.in = 64, .out = 192, .kernel = 5, .padding = 2});
    add("6", {.in = 192, .out = 384, .kernel = 3, .padding = 1});
    add("8", {.in = 384, .out = 256, .kernel = 3, .padding = 1});
    add("10", {.in = 256, .out = 256, .kernel = 3, .padding = 1});
    const auto classifier = add_group(*this, "classifier");
    hidden1_ = classifier->register_module("1", nn::Linear(256 * 6 * 6, 4096));
    hidden2_ = classifier->register_module("4", nn::Linear(4096, 4096));
    scores_ = classifier->register_module("6", nn::Linear(4096, classes));
  }

  torch::Tensor forward(const torch::Tensor& values) override {
    torch::Tensor x = values;
    for (std::size_t i = 0; i < convolutions_.size(); ++i) {
      x = apply(convolutions_[i], x).relu_();
      if (i < 2 || i == 4) x = max_pool(x, kPool);
    }
    x = at::adaptive_avg_pool2d(x, {6, 6}).flatten(1);
    x = apply(hidden1_, dropout(x, kDropout)).relu_();
    x = apply(hidden2_, dropout(x, kDropout)).relu_();
    return apply(scores_, x);
  }

 private:
  std::vector<nn::Conv2d> convolutions_;
  nn::Linear hidden1_{nullptr}, hidden2_{nullptr}, scores_{nullptr};
};

}  // namespace

std::shared_ptr<Model> make_alexnet(const ModelSpec& spec) { return std::make_shared<Alexnet>(spec.outputs); }

}  // namespace sumpter
