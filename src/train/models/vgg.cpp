// VGG-16 without batch normalization, as torchvision has it.
#include <ATen/ops/adaptive_avg_pool2d.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/linear.h>

#include "train/models/families.h"
#include "train/models/layers.h"

namespace sumpter {
namespace {

namespace nn = torch::nn;

constexpr double kDropout = 0.5;
// Maps after each convolution of a block; a block ends with a pooling.
const std::vector<std::vector<std::int64_t>> kBlocks = {
    {64, 64}, {128, 128}, {256, 256, 256}, {512, 512, 512}, {512, 512, 512}};

class Vgg : public Model {
 public:
  explicit Vgg(std::int64_t classes) {
    add_features();
    const auto classifier = add_group(*this, "classifier");
    const auto add = [&](const char* name, std::int64_t in, std::int64_t out) {
      auto layer = classifier->register_module(name, nn::Linear(in, out));
      nn::init::normal_(layer->weight, 0, 0.01);
      nn::init::zeros_(layer->bias);
      return layer;
    };
    hidden1_ = add("0", 512 * 7 * 7, 4096);
    hidden2_ = add("3", 4096, 4096);
    scores_ = add("6", 4096, classes);
  }

  torch::Tensor forward(const torch::Tensor& values) override {
    torch::Tensor x = values;
    for (auto& block : blocks_) {
      for (nn::Conv2d& convolution : block) x = apply(convolution, x).relu_();
      x = max_pool(x, {});
    }
    x = at::adaptive_avg_pool2d(x, {7, 7}).flatten(1);
    x = dropout(apply(hidden1_, x).relu_(), kDropout);
    x = dropout(apply(hidden2_, x).relu_(), kDropout);
    return apply(scores_, x);
  }

 private:
  // torchvision numbers convolutions, activations and poolings through.
  void add_features() {
    const auto features = add_group(*this, "features");
    int position = 0;
    std::int64_t in = 3;
    for (const auto& widths : kBlocks) {
      std::vector<nn::Conv2d>& block = blocks_.emplace_back();
      for (const std::int64_t out : widths) {
        block.push_back(features->register_module(
            std::to_string(position), make_conv({.in = in, .out = out, .kernel = 3, .padding = 1}, /*bias=*/true)));
        nn::init::kaiming_normal_(block.back()->weight, 0, torch::kFanOut, torch::kReLU);
        nn::init::zeros_(block.back()->bias);
        position += 2;
        in = out;
      }
      ++position;
    }
  }

  std::vector<std::vector<nn::Conv2d>> blocks_;
  nn::Linear hidden1_{nullptr}, hidden2_{nullptr}, scores_{nullptr};
};

}  // namespace

std::shared_ptr<Model> make_vgg(const ModelSpec& spec) { return std::make_shared<Vgg>(spec.outputs); }

}  // namespace sumpter
