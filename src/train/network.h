// One replica's model as the trainer drives it: built in, a TorchScript file, or the user's own.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/types.h>

#include <compare>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "step/chunks.h"
#include "train/catalogue.h"

namespace torch::nn {
class Module;
}

namespace sumpter {

// Called before parameters are read, with the layer that owns them (NamedTensor::layer), or null for all; may block.
using Gate = std::function<void(const void* layer)>;

struct NamedTensor {
  std::string name;             // in a state_dict: "layer1.0.conv1.weight"
  torch::Tensor tensor;         // the model's own
  bool trains = false;          // a parameter that requires a gradient; buffers and frozen parameters do not
  bool buffer = false;          // a loss may change it
  const void* layer = nullptr;  // what the gate is asked for before it is read, unless it is asked for all at once
};

// Used by one thread at a time. What torch throws comes through as it is.
class Network {
 public:
  Network() = default;
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;
  virtual ~Network();

  // Parameters and buffers by their names in a state_dict and in its order.
  virtual std::vector<NamedTensor> state() const = 0;
  // The mean loss over the rows, a scalar that backward() can be called on, in training mode: buffers may change.
  // values, labels: as Inputs (inputs.h) has them.
  virtual torch::Tensor loss(const torch::Tensor& values, const torch::Tensor& labels) = 0;
  // The scores of the rows in evaluation mode, [rows, classes] or [rows, positions, classes]; no gradient is recorded
  // and nothing changes. float32 under bf16.
  virtual torch::Tensor scores(const torch::Tensor& values) = 0;
  // Empty: nothing is asked.
  virtual void set_gate(Gate gate) = 0;
  // Dropout of the next losses is drawn from this seed (built-in models; others draw from torch's default generator).
  virtual void seed(std::uint64_t seed);
};

// Of a module and those below it, each entry with the module that owns it as its layer.
std::vector<NamedTensor> state_of(const torch::nn::Module& module);

// bfloat16 becomes float32; all else is as it is.
torch::Tensor widened(const torch::Tensor& tensor);

// Where a tensor's elements lie, each of them: tensors that have the same place are one in memory. Tensors without
// elements have places of their own.
struct Place {
  const void* begin = nullptr;
  at::ScalarType type = at::kFloat;
  std::vector<std::int64_t> sizes, strides;
  auto operator<=>(const Place&) const = default;
};
Place place_of(const torch::Tensor& tensor);

// For state(): of names that have one place the first parameter, or the first buffer where none is a parameter, keeps
// its marks; the others neither train nor are buffers. Leaves out what is undefined.
std::vector<NamedTensor> without_repeats(std::vector<NamedTensor> entries);

// For a model that others made, before its state() is given to anyone, who will read and write numel() elements from
// the data pointer: each tensor that is not contiguous gets a storage that is; under float64 those of floating point
// become doubles. Names of one place have one afterwards. Throws RequestError that begins with `model` where two
// tensors cannot be kept apart nor be one: they overlap without having one place, or they have, and gradients would
// reach one of them alone; and where a tensor is sparse.
void lay_out(const std::vector<NamedTensor>& state, Precision precision, const std::string& model);

struct LossOptions {
  double label_smoothing = 0;  // 0 to 1, as torch.nn.CrossEntropyLoss has it
};

struct NetworkOptions {
  std::uint64_t seed = 0;  // of the initial parameters and, until seed() is called, of dropout
  Precision precision = Precision::float32;
  LossOptions loss = {};
  bool use_dropout = true;  // false: a built-in model's lets everything pass, for comparisons
};

// Initialised from the seed: the same numbers whenever it is called with it; a script keeps those of its file. Sets the
// seed of torch's default generator: one thread at a time. Throws DataError where a script cannot be read, RequestError
// where its parameters are not float32.
std::unique_ptr<Network> make_network(const ModelSpec& spec, const NetworkOptions& options);

// The mean cross entropy. scores: [rows, classes] with labels [rows], or [rows, positions, classes] with labels
// [rows, positions].
torch::Tensor cross_entropy(const torch::Tensor& scores, const torch::Tensor& labels, const LossOptions& options);

// What the step needs to know of the parameters that train: those whose names agree up to the last dot belong to one
// module; modules are numbered in the order given.
std::vector<ParameterInfo> describe(const std::vector<NamedTensor>& trained);

// While it lives, this thread runs convolutions and matrix products on the CPU in bfloat16 where `on`; what it computes
// under is put back afterwards.
class Bf16Autocast {
 public:
  explicit Bf16Autocast(bool on);
  ~Bf16Autocast();
  Bf16Autocast(const Bf16Autocast&) = delete;
  Bf16Autocast& operator=(const Bf16Autocast&) = delete;

 private:
  bool on_;
  bool was_enabled_ = false;
  bool was_caching_ = false;
  at::ScalarType was_type_ = at::kBFloat16;
};

}  // namespace sumpter
