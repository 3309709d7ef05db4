#include "train/models/model.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>

#include <mutex>

#include "base/error.h"
#include "train/models/families.h"

namespace sumpter {

Model::Model() : generator_(at::detail::createCPUGenerator()) {}

void Model::seed(std::uint64_t seed) {
  const std::scoped_lock lock(generator_.mutex());
  generator_.set_current_seed(seed);
}

torch::Tensor Model::dropout(const torch::Tensor& values, double p) {
  if (!is_training() || !use_dropout_ || p == 0) return values;
  // Drawn as float32 whatever the values are, so that every precision drops the same ones.
  const auto kept = at::empty(values.sizes(), at::kFloat).bernoulli_(1 - p, generator_);
  return values * kept.to(values.scalar_type()).div_(1 - p);
}

std::shared_ptr<Model> make_model(const ModelSpec& spec) {
  switch (spec.kind) {
    case ModelSpec::Kind::lenet:
      return make_lenet();
    case ModelSpec::Kind::mlp:
      return make_mlp(spec);
    case ModelSpec::Kind::alexnet:
      return make_alexnet(spec);
    case ModelSpec::Kind::vgg16:
      return make_vgg(spec);
    case ModelSpec::Kind::resnet18:
    case ModelSpec::Kind::resnet50:
    case ModelSpec::Kind::resnet152:
      return make_resnet(spec);
    case ModelSpec::Kind::googlenet:
      return make_googlenet(spec);
    case ModelSpec::Kind::gpt:
      return make_gpt(spec);
    case ModelSpec::Kind::script:
      break;
  }
  raise<Error>("model {} is not built in", spec.name);
}

}  // namespace sumpter
