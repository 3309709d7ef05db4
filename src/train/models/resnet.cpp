// Residual networks as torchvision has them: in bottlenecks, the middle convolution takes the stride.
#include <ATen/ops/adaptive_avg_pool2d.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/linear.h>

#include "base/error.h"
#include "train/models/families.h"
#include "train/models/layers.h"

namespace sumpter {
namespace {

namespace nn = torch::nn;

struct NormedConv {
  nn::Conv2d convolution{nullptr};
  nn::BatchNorm2d norm{nullptr};

  torch::Tensor forward(Model& model, const torch::Tensor& values) {
    return apply_norm(model, norm, model.apply(convolution, values));
  }
};

NormedConv add_conv(nn::Module& owner, const std::string& conv_name, const std::string& norm_name,
                    const ConvShape& shape) {
  NormedConv layer{owner.register_module(conv_name, make_conv(shape, /*bias=*/false)),
                   owner.register_module(norm_name, nn::BatchNorm2d(shape.out))};
  nn::init::kaiming_normal_(layer.convolution->weight, 0, torch::kFanOut, torch::kReLU);
  return layer;
}

struct ResnetShape {
  bool bottleneck = false;
  std::int64_t blocks[4] = {2, 2, 2, 2};

  std::int64_t expansion() const { return bottleneck ? 4 : 1; }
};

ResnetShape shape_of(const ModelSpec& spec) {
  switch (spec.kind) {
    case ModelSpec::Kind::resnet18:
      return {};
    case ModelSpec::Kind::resnet50:
      return {.bottleneck = true, .blocks = {3, 4, 6, 3}};
    case ModelSpec::Kind::resnet152:
      return {.bottleneck = true, .blocks = {3, 8, 36, 3}};
    default:
      raise<Error>("model {} is no residual network", spec.name);
  }
}

// Two convolutions of 3x3, or a 3x3 between two 1x1, beside a path that lets values pass.
class Residual : public nn::Module {
 public:
  Residual(std::int64_t in, std::int64_t width, std::int64_t stride, const ResnetShape& shape) {
    const std::int64_t out = width * shape.expansion();
    if (shape.bottleneck) {
      add({.in = in, .out = width});
      add({.in = width, .out = width, .kernel = 3, .stride = stride, .padding = 1});
      add({.in = width, .out = out});
    } else {
      add({.in = in, .out = width, .kernel = 3, .stride = stride, .padding = 1});
      add({.in = width, .out = out, .kernel = 3, .padding = 1});
    }
    if (stride != 1 || in != out)
      shortcut_ = add_conv(*add_group(*this, "downsample"), "0", "1", {.in = in, .out = out, .stride = stride});
  }

  torch::Tensor forward(Model& model, const torch::Tensor& values) {
    torch::Tensor x = values;
    for (NormedConv& layer : layers_) {
      x = layer.forward(model, x);
      if (&layer != &layers_.back()) x = x.relu_();
    }
    x += shortcut_.norm.is_empty() ? values : shortcut_.forward(model, values);
    return x.relu_();
  }

 private:
  void add(const ConvShape& shape) {
    const std::string number = std::to_string(layers_.size() + 1);
    layers_.push_back(add_conv(*this, "conv" + number, "bn" + number, shape));
  }

  std::vector<NormedConv> layers_;
  NormedConv shortcut_;
};

class Resnet : public Model {
 public:
  Resnet(const ResnetShape& shape, std::int64_t classes)
      : stem_(add_conv(*this, "conv1", "bn1", {.in = 3, .out = 64, .kernel = 7, .stride = 2, .padding = 3})) {
    std::int64_t in = 64, width = 64;
    for (int stage = 0; stage < 4; ++stage) {
      const auto layer = add_group(*this, "layer" + std::to_string(stage + 1));
      for (std::int64_t block = 0; block < shape.blocks[stage]; ++block) {
        const std::int64_t stride = stage > 0 && block == 0 ? 2 : 1;
        blocks_.push_back(
            layer->register_module(std::to_string(block), std::make_shared<Residual>(in, width, stride, shape)));
        in = width * shape.expansion();
      }
      width *= 2;
    }
    scores_ = register_module("fc", nn::Linear(in, classes));
  }

  torch::Tensor forward(const torch::Tensor& values) override {
    torch::Tensor x = max_pool(stem_.forward(*this, values).relu_(), {.kernel = 3, .stride = 2, .padding = 1});
    for (const auto& block : blocks_) x = block->forward(*this, x);
    return apply(scores_, at::adaptive_avg_pool2d(x, {1, 1}).flatten(1));
  }

 private:
  NormedConv stem_;
  std::vector<std::shared_ptr<Residual>> blocks_;
  nn::Linear scores_{nullptr};
};

}  // namespace

std::shared_ptr<Model> make_resnet(const ModelSpec& spec) {
  return std::make_shared<Resnet>(shape_of(spec), spec.outputs);
}

}  // namespace sumpter
