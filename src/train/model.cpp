#include "train/model.h"

#include <torch/nn/functional/activation.h>
#include <torch/nn/functional/pooling.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include "base/error.h"

namespace sumpter {
namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;

// Caffe's LeNet: no activation after the convolutions.
class Lenet : public Model {
 public:
  torch::Tensor forward(torch::Tensor images) override {
    const auto halve = F::MaxPool2dFuncOptions(2);
    auto x = F::max_pool2d(apply(conv1_, images), halve);
    x = F::max_pool2d(apply(conv2_, x), halve);
    x = torch::relu(apply(fc1_, x.flatten(1)));
    return apply(fc2_, x);
  }

 private:
  nn::Conv2d conv1_ = register_module("conv1", nn::Conv2d(nn::Conv2dOptions(1, 20, 5)));
  nn::Conv2d conv2_ = register_module("conv2", nn::Conv2d(nn::Conv2dOptions(20, 50, 5)));
  nn::Linear fc1_ = register_module("fc1", nn::Linear(800, 500));
  nn::Linear fc2_ = register_module("fc2", nn::Linear(500, 10));
};

class Mlp : public Model {
 public:
  explicit Mlp(const std::vector<std::int64_t>& sizes) {
    for (std::size_t i = 1; i < sizes.size(); ++i)
      layers_.push_back(register_module("fc" + std::to_string(i), nn::Linear(sizes[i - 1], sizes[i])));
  }
  torch::Tensor forward(torch::Tensor images) override {
    auto x = images.flatten(1);
    for (auto& layer : layers_) {
      x = apply(layer, x);
      if (&layer != &layers_.back()) x = torch::relu(x);
    }
    return x;
  }

 private:
  std::vector<nn::Linear> layers_;
};

}  // namespace

std::shared_ptr<Model> make_model(const ModelSpec& spec, std::uint64_t seed) {
  torch::manual_seed(seed);
  switch (spec.kind) {
    case ModelSpec::Kind::lenet:
      return std::make_shared<Lenet>();
    case ModelSpec::Kind::mlp:
      return std::make_shared<Mlp>(spec.sizes);
  }
  raise<RequestError>("model {}: unknown kind", spec.name);
}

void check_input(const ModelSpec& spec, const ImageShape& shape, int classes) {
  const std::string found = fmt::format("{}x{}x{}", shape.channels, shape.height, shape.width);
  if (spec.kind == ModelSpec::Kind::lenet && shape != ImageShape{1, 28, 28})
    raise<RequestError>("model {} takes images of 1x28x28 and the data has {}: choose another model or other data",
                        spec.name, found);
  if (spec.kind == ModelSpec::Kind::mlp && static_cast<std::int64_t>(shape.bytes()) != spec.sizes.front())
    raise<RequestError>(
        "model {} takes {} values per image and the data has {} = {}: choose an mlp of that width, as in "
        "mlp:{}-512-{}",
        spec.name, spec.sizes.front(), found, shape.bytes(), shape.bytes(), classes);
  if (classes > spec.classes())
    raise<RequestError>("model {} tells {} classes apart and the data has {}: choose a model with an output for each",
                        spec.name, spec.classes(), classes);
}

std::vector<Parameter> parameters_of(const Model& model) {
  std::vector<Parameter> parameters;
  for (const auto& module : model.named_modules())
    for (const auto& parameter : module.value()->named_parameters(/*recurse=*/false))
      parameters.push_back({module.key().empty() ? parameter.key() : module.key() + "." + parameter.key(),
                            parameter.value(), module.value().get()});
  return parameters;
}

std::vector<ParameterInfo> describe(const std::vector<Parameter>& parameters) {
  std::vector<ParameterInfo> infos;
  int module = -1;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (i == 0 || parameters[i].module != parameters[i - 1].module) ++module;
    infos.push_back({parameters[i].name, static_cast<std::size_t>(parameters[i].tensor.numel()), module});
  }
  return infos;
}

}  // namespace sumpter
