// What all built-in models have: a model asks its gate before it reads a layer's parameters, so that the next forward
// waits for what it reads, layer by layer, and for nothing else; and it draws dropout from a generator of its own.
// Modules are named and registered as torchvision's are, so that weights go from one to the other.
#pragma once

#include <ATen/core/Generator.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "train/catalogue.h"
#include "train/network.h"

namespace sumpter {

class Model : public torch::nn::Module {
 public:
  Model();

  // The scores of the rows: values as Inputs (inputs.h) has them to [rows, classes] or [rows, positions, classes].
  virtual torch::Tensor forward(const torch::Tensor& values) = 0;

  struct Head {
    torch::Tensor scores;
    double weight = 1;  // of its loss in the sum
  };
  // All scores that the loss is made of. In training mode a model may have more than those of forward().
  virtual std::vector<Head> heads(const torch::Tensor& values) { return {{forward(values), 1}}; }

  void set_gate(Gate gate) { gate_ = std::move(gate); }
  // What dropout draws next.
  void seed(std::uint64_t seed);
  // Off: dropout lets everything pass, for comparisons with another implementation.
  void use_dropout(bool on) { use_dropout_ = on; }

  // For the model's own blocks. The layer's output, once its parameters may be read.
  template <typename Layer>
  torch::Tensor apply(Layer& layer, const torch::Tensor& input) {
    if (gate_) gate_(static_cast<const torch::nn::Module*>(layer.get()));
    return layer->forward(input);
  }
  // In training, zeroes each value with probability p and scales the others by 1 / (1 - p); else the values.
  torch::Tensor dropout(const torch::Tensor& values, double p);

 private:
  Gate gate_;
  at::Generator generator_;
  bool use_dropout_ = true;
};

// Initialised as torchvision does by default (vision), as torch does (lenet, mlp) or as GPT-2 was, from torch's default
// generator. Not for scripts.
std::shared_ptr<Model> make_model(const ModelSpec& spec);

}  // namespace sumpter
