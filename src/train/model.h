// The models themselves. A model asks its gate before it reads a layer's parameters, so that the next forward waits for
// what it reads, layer by layer, and for nothing else.
#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "input/dataset.h"
#include "step/chunks.h"
#include "train/catalogue.h"

namespace sumpter {

// Called with the layer whose parameters are about to be read; may block.
using Gate = std::function<void(const torch::nn::Module& layer)>;

class Model : public torch::nn::Module {
 public:
  // float32 images [rows, channels, height, width] to scores [rows, classes].
  virtual torch::Tensor forward(torch::Tensor images) = 0;
  void set_gate(Gate gate) { gate_ = std::move(gate); }

 protected:
  // The layer's output, once its parameters may be read.
  template <typename Layer>
  torch::Tensor apply(Layer& layer, const torch::Tensor& input) {
    if (gate_) gate_(*layer);
    return layer->forward(input);
  }

 private:
  Gate gate_;
};

// Initialised as torch does by default, from the seed: the same numbers whenever it is called with it. Sets the seed of
// torch's default generator; one thread at a time.
std::shared_ptr<Model> make_model(const ModelSpec& spec, std::uint64_t seed);

// Throws RequestError, with what the model wants and what the data has, when they do not fit.
void check_input(const ModelSpec& spec, const ImageShape& shape, int classes);

// Parameters in registration order, by their names in a state_dict ("conv1.weight").
struct Parameter {
  std::string name;
  torch::Tensor tensor;
  const torch::nn::Module* module = nullptr;
};
std::vector<Parameter> parameters_of(const Model& model);
// What the step needs to know of them: modules are numbered in registration order.
std::vector<ParameterInfo> describe(const std::vector<Parameter>& parameters);

}  // namespace sumpter
