#include "train/script.h"

#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/passes/inliner.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/runtime/operator.h>
#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace sumpter {
namespace {

torch::jit::Module read_module(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error))
    raise<DataError>("{}: there is no such file; a model that ends in .pt or .ts is a TorchScript file", path.string());
  torch::jit::Module module;
  try {
    module = torch::jit::load(path.string(), at::kCPU);
  } catch (const c10::Error& fault) {
    raise<DataError>("{}: this is no TorchScript file, as torch.jit.save writes it: {}", path.string(),
                     in_one_line(fault.what_without_backtrace()));
  }
  if (!module.find_method("forward"))
    raise<DataError>("{}: the module has no forward(); save one that computes scores", path.string());
  return module;
}

// A file forgets that two names mean one tensor and keeps that they share memory: makes them one again, so that they
// have one gradient.
void tie(const torch::jit::Module& root) {
  std::map<Place, at::Tensor> first;
  for (const auto& module : root.named_modules()) {
    for (const auto& parameter : module.value.named_parameters(/*recurse=*/false)) {
      if (!parameter.value.defined() || !parameter.value.requires_grad()) continue;
      const auto [known, added] = first.emplace(place_of(parameter.value), parameter.value);
      if (added) continue;
      torch::jit::Module owner = module.value;
      owner.setattr(parameter.name, known->second);
    }
  }
}

class ScriptNetwork : public Network {
 public:
  ScriptNetwork(torch::jit::Module module, const std::filesystem::path& path, const NetworkOptions& options)
      : module_(std::move(module)), name_(path.string()), options_(options) {
    tie(module_);
    const std::vector<NamedTensor> entries = ScriptNetwork::state();
    for (const NamedTensor& entry : entries) {
      if (entry.trains && entry.tensor.scalar_type() != at::kFloat)
        raise<RequestError>("{}: parameter {} is {} and not float32: save the model with float32 parameters", name_,
                            entry.name, at::toString(entry.tensor.scalar_type()));
    }
    lay_out(entries, options.precision, name_);
    if (std::ranges::none_of(entries, &NamedTensor::trains))
      raise<RequestError>("{}: none of its parameters requires a gradient, so there is nothing to train", name_);
  }

  std::vector<NamedTensor> state() const override {
    std::vector<NamedTensor> state;
    for (const auto& module : module_.named_modules()) {
      const std::string prefix = module.name.empty() ? "" : module.name + ".";
      for (const auto& parameter : module.value.named_parameters(/*recurse=*/false))
        state.push_back({.name = prefix + parameter.name,
                         .tensor = parameter.value,
                         .trains = parameter.value.defined() && parameter.value.requires_grad()});
      for (const auto& buffer : module.value.named_buffers(/*recurse=*/false))
        state.push_back({.name = prefix + buffer.name, .tensor = buffer.value, .buffer = true});
    }
    return without_repeats(std::move(state));
  }

  torch::Tensor loss(const torch::Tensor& values, const torch::Tensor& labels) override {
    set_training(true);
    const Bf16Autocast autocast(options_.precision == Precision::bf16);
    return cross_entropy(forward(values), labels, options_.loss);
  }

  torch::Tensor scores(const torch::Tensor& values) override {
    const torch::NoGradGuard no_grad;
    set_training(false);
    const Bf16Autocast autocast(options_.precision == Precision::bf16);
    return widened(forward(values));
  }

  void set_gate(Gate gate) override { gate_ = std::move(gate); }

 private:
  void set_training(bool on) {
    if (module_.is_training() != on) module_.train(on);
  }

  torch::Tensor forward(const torch::Tensor& values) {
    if (gate_) gate_(nullptr);
    // Unoptimized: the optimizer measures the first calls and rewrites the graph for those that follow, whose rounding
    // would depend on how many calls there were since the file was loaded.
    const torch::jit::GraphOptimizerEnabledGuard plain(false);
    const c10::IValue scores = module_.forward({values});
    if (!scores.isTensor() || scores.toTensor().dim() < 2)
      raise<RequestError>(
          "{}: forward() returned {} and not a tensor of scores, [rows, classes]: save a model that does", name_,
          scores.isTensor() ? "a tensor of fewer than 2 dimensions" : scores.tagKind());
    return scores.toTensor();
  }

  mutable torch::jit::Module module_;
  std::string name_;
  NetworkOptions options_;
  Gate gate_;
};

// The constant that the node has as its argument of that name, if it is one.
std::optional<c10::IValue> constant(const torch::jit::Node& node, std::string_view name) {
  const auto& arguments = node.schema().arguments();
  for (std::size_t i = 0; i < arguments.size() && i < node.inputs().size(); ++i)
    if (arguments[i].name() == name) return torch::jit::toIValue(node.inputs()[i]);
  return std::nullopt;
}

bool has_argument(const torch::jit::Node& node, std::string_view name) {
  return std::ranges::any_of(node.schema().arguments(), [&](const auto& argument) { return argument.name() == name; });
}

bool draws_random_numbers(const torch::jit::Node& node) {
  const torch::jit::Operator* op = node.maybeOperator();
  if (op == nullptr) return false;
  // Operators that drop values on the way have a probability under one of these names, and some have no tag.
  bool drops = false;
  for (const char* name : {"p", "dropout_p", "dropout"}) {
    if (!has_argument(node, name) || (name == std::string_view("p") && !has_argument(node, "train"))) continue;
    const auto probability = constant(node, name);
    if (probability && probability->isDouble() && probability->toDouble() == 0) return false;
    drops = true;
  }
  const auto training = constant(node, "train");
  if (training && training->isBool() && !training->toBool()) return false;
  const auto tags = op->getTags();
  return drops || std::find(tags.begin(), tags.end(), at::Tag::nondeterministic_seeded) != tags.end();
}

bool draws_random_numbers(const torch::jit::Block& block) {
  return std::ranges::any_of(block.nodes(), [](const torch::jit::Node* node) {
    if (draws_random_numbers(*node)) return true;
    if (node->hasAttribute(torch::jit::attr::Subgraph) &&
        draws_random_numbers(*node->g(torch::jit::attr::Subgraph)->block()))
      return true;
    return std::ranges::any_of(node->blocks(),
                               [](const torch::jit::Block* inner) { return draws_random_numbers(*inner); });
  });
}

}  // namespace

std::string in_one_line(std::string_view text) {
  while (text.ends_with('\n')) text.remove_suffix(1);
  if (text.find("Traceback of TorchScript") != std::string_view::npos)
    return std::string(text.substr(text.rfind('\n') + 1));
  return std::string(text.substr(0, text.find('\n')));
}

std::unique_ptr<Network> load_script(const std::filesystem::path& path, const NetworkOptions& options) {
  return std::make_unique<ScriptNetwork>(read_module(path), path, options);
}

bool draws_random_numbers(const std::filesystem::path& path) {
  // Keeps the types alive whose methods are inlined.
  const torch::jit::Module module = read_module(path);
  const auto graph = module.get_method("forward").graph()->copy();
  torch::jit::Inline(*graph);
  return draws_random_numbers(*graph->block());
}

}  // namespace sumpter
