// GoogLeNet with batch normalization, as torchvision has it: the branch that the paper gives a 5x5 convolution has a
// 3x3 one, and images are taken as they are (transform_input=False).
#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/cat.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/linear.h>

#include "train/models/families.h"
#include "train/models/layers.h"

namespace sumpter {
namespace {

namespace nn = torch::nn;

constexpr double kDropout = 0.2, kAuxiliaryDropout = 0.7;
constexpr double kAuxiliaryWeight = 0.3;  // the paper's

// torchvision's truncated normal: its bounds, -2 and 2, are 200 standard deviations away.
void initialize(torch::Tensor& weight) { nn::init::normal_(weight, 0, 0.01); }

nn::Linear make_linear(std::int64_t in, std::int64_t out) {
  nn::Linear layer(in, out);
  initialize(layer->weight);
  return layer;
}

// A convolution, batch normalization, ReLU.
class Conv : public nn::Module {
 public:
  explicit Conv(const ConvShape& shape)
      : convolution_(register_module("conv", make_conv(shape, /*bias=*/false))),
        norm_(register_module("bn", nn::BatchNorm2d(nn::BatchNorm2dOptions(shape.out).eps(0.001)))) {
    initialize(convolution_->weight);
  }
  torch::Tensor forward(Model& model, const torch::Tensor& values) {
    return apply_norm(model, norm_, model.apply(convolution_, values)).relu_();
  }

 private:
  nn::Conv2d convolution_;
  nn::BatchNorm2d norm_;
};

std::shared_ptr<Conv> add_conv(nn::Module& owner, const std::string& name, const ConvShape& shape) {
  return owner.register_module(name, std::make_shared<Conv>(shape));
}

// Maps of each branch: 1x1; 3x3 behind a 1x1; another of that kind; 1x1 behind a pooling.
struct InceptionShape {
  std::int64_t in, direct, reduced2, out2, reduced3, out3, pooled;
};

class Inception : public nn::Module {
 public:
  explicit Inception(const InceptionShape& shape) {
    branch1_ = add_conv(*this, "branch1", {.in = shape.in, .out = shape.direct});
    const auto branch2 = add_group(*this, "branch2");
    reduce2_ = add_conv(*branch2, "0", {.in = shape.in, .out = shape.reduced2});
    branch2_ = add_conv(*branch2, "1", {.in = shape.reduced2, .out = shape.out2, .kernel = 3, .padding = 1});
    const auto branch3 = add_group(*this, "branch3");
    reduce3_ = add_conv(*branch3, "0", {.in = shape.in, .out = shape.reduced3});
    branch3_ = add_conv(*branch3, "1", {.in = shape.reduced3, .out = shape.out3, .kernel = 3, .padding = 1});
    branch4_ = add_conv(*add_group(*this, "branch4"), "1", {.in = shape.in, .out = shape.pooled});
  }

  torch::Tensor forward(Model& model, const torch::Tensor& values) {
    const auto first = branch1_->forward(model, values);
    const auto second = branch2_->forward(model, reduce2_->forward(model, values));
    const auto third = branch3_->forward(model, reduce3_->forward(model, values));
    const auto pooled = max_pool(values, {.kernel = 3, .stride = 1, .padding = 1, .ceil = true});
    return at::cat({first, second, third, branch4_->forward(model, pooled)}, 1);
  }

 private:
  std::shared_ptr<Conv> branch1_, reduce2_, branch2_, reduce3_, branch3_, branch4_;
};

// Scores from a layer in the middle: a short way for gradients.
class Auxiliary : public nn::Module {
 public:
  Auxiliary(std::int64_t in, std::int64_t classes)
      : convolution_(add_conv(*this, "conv", {.in = in, .out = 128})),
        hidden_(register_module("fc1", make_linear(2048, 1024))),
        scores_(register_module("fc2", make_linear(1024, classes))) {}

  torch::Tensor forward(Model& model, const torch::Tensor& values) {
    auto x = convolution_->forward(model, at::adaptive_avg_pool2d(values, {4, 4}));
    x = model.apply(hidden_, x.flatten(1)).relu_();
    return model.apply(scores_, model.dropout(x, kAuxiliaryDropout));
  }

 private:
  std::shared_ptr<Conv> convolution_;
  nn::Linear hidden_, scores_;
};

class Googlenet : public Model {
 public:
  explicit Googlenet(std::int64_t classes) {
    conv1_ = add_conv(*this, "conv1", {.in = 3, .out = 64, .kernel = 7, .stride = 2, .padding = 3});
    conv2_ = add_conv(*this, "conv2", {.in = 64, .out = 64});
    conv3_ = add_conv(*this, "conv3", {.in = 64, .out = 192, .kernel = 3, .padding = 1});
    const auto add = [&](const char* name, const InceptionShape& shape) {
      return register_module(name, std::make_shared<Inception>(shape));
    };
    inception3_ = {add("inception3a", {192, 64, 96, 128, 16, 32, 32}),
                   add("inception3b", {256, 128, 128, 192, 32, 96, 64})};
    inception4_ = {
        add("inception4a", {480, 192, 96, 208, 16, 48, 64}), add("inception4b", {512, 160, 112, 224, 24, 64, 64}),
        add("inception4c", {512, 128, 128, 256, 24, 64, 64}), add("inception4d", {512, 112, 144, 288, 32, 64, 64}),
        add("inception4e", {528, 256, 160, 320, 32, 128, 128})};
    inception5_ = {add("inception5a", {832, 256, 160, 320, 32, 128, 128}),
                   add("inception5b", {832, 384, 192, 384, 48, 128, 128})};
    auxiliary1_ = register_module("aux1", std::make_shared<Auxiliary>(512, classes));
    auxiliary2_ = register_module("aux2", std::make_shared<Auxiliary>(528, classes));
    scores_ = register_module("fc", make_linear(1024, classes));
  }

  torch::Tensor forward(const torch::Tensor& values) override { return heads(values).front().scores; }

  std::vector<Head> heads(const torch::Tensor& values) override {
    constexpr PoolShape kHalve{.kernel = 3, .stride = 2, .ceil = true};
    auto x = max_pool(conv1_->forward(*this, values), kHalve);
    x = max_pool(conv3_->forward(*this, conv2_->forward(*this, x)), kHalve);
    for (const auto& inception : inception3_) x = inception->forward(*this, x);
    x = max_pool(x, kHalve);
    std::vector<Head> auxiliary;
    for (std::size_t i = 0; i < inception4_.size(); ++i) {
      x = inception4_[i]->forward(*this, x);
      if (!is_training() || (i != 0 && i != 3)) continue;
      auxiliary.push_back({(i == 0 ? auxiliary1_ : auxiliary2_)->forward(*this, x), kAuxiliaryWeight});
    }
    x = max_pool(x, {.ceil = true});
    for (const auto& inception : inception5_) x = inception->forward(*this, x);
    x = dropout(at::adaptive_avg_pool2d(x, {1, 1}).flatten(1), kDropout);
    std::vector<Head> heads{{apply(scores_, x), 1}};
    heads.insert(heads.end(), auxiliary.begin(), auxiliary.end());
    return heads;
  }

 private:
  std::shared_ptr<Conv> conv1_, conv2_, conv3_;
  std::vector<std::shared_ptr<Inception>> inception3_, inception4_, inception5_;
  std::shared_ptr<Auxiliary> auxiliary1_, auxiliary2_;
  nn::Linear scores_{nullptr};
};

}  // namespace

std::shared_ptr<Model> make_googlenet(const ModelSpec& spec) { return std::make_shared<Googlenet>(spec.outputs); }

}  // namespace sumpter
