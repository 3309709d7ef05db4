#include "train/models/layers.h"

#include "base/error.h"

namespace sumpter {

std::shared_ptr<torch::nn::Module> add_group(torch::nn::Module& owner, const std::string& name) {
  return owner.register_module(name, std::make_shared<torch::nn::Module>());
}

torch::nn::Conv2d make_conv(const ConvShape& shape, bool bias) {
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(shape.in, shape.out, shape.kernel)
                               .stride(shape.stride)
                               .padding(shape.padding)
                               .bias(bias));
}

torch::Tensor apply_norm(Model& model, torch::nn::BatchNorm2d& norm, const torch::Tensor& values) {
  if (norm->is_training() && values.numel() == values.size(1))
    raise<RequestError>(
        "batch normalization needs more than one value of a channel, and a replica has a single row whose image has "
        "shrunk to one pixel: give each replica 2 rows or more, or larger images (--image-size)");
  return model.apply(norm, values);
}

}  // namespace sumpter
