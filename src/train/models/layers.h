// What several families of models share: groups of modules, and the ways in which convolutional networks are built.
#pragma once

#include <ATen/ops/max_pool2d.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>

#include <memory>
#include <string>

#include "train/models/model.h"

namespace sumpter {

// A module that only gives names to those in it, as torch.nn.Sequential does.
std::shared_ptr<torch::nn::Module> add_group(torch::nn::Module& owner, const std::string& name);

struct ConvShape {
  std::int64_t in = 0, out = 0, kernel = 1, stride = 1, padding = 0;
};
torch::nn::Conv2d make_conv(const ConvShape& shape, bool bias);

// The layer's output, once its parameters may be read. Throws RequestError where a channel has one value only, which
// has no variance: a single row whose image has shrunk to one pixel.
torch::Tensor apply_norm(Model& model, torch::nn::BatchNorm2d& norm, const torch::Tensor& values);

struct PoolShape {
  std::int64_t kernel = 2, stride = 2, padding = 0;
  bool ceil = false;  // an incomplete window at the end counts
};
inline torch::Tensor max_pool(const torch::Tensor& values, const PoolShape& shape) {
  return at::max_pool2d(values, {shape.kernel, shape.kernel}, {shape.stride, shape.stride},
                        {shape.padding, shape.padding}, {1, 1}, shape.ceil);
}

}  // namespace sumpter
