#include "train/network.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/zeros.h>
#include <torch/utils.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "train/models/model.h"
#include "train/script.h"

namespace sumpter {
namespace {

// Numbers, not counts: num_batches_tracked stays an integer.
void widen(const std::vector<NamedTensor>& state) {
  for (const NamedTensor& entry : state)
    if (entry.tensor.is_floating_point()) entry.tensor.set_data(entry.tensor.to(at::kDouble));
}

// The bytes of a tensor that has elements.
struct Extent {
  const char* begin = nullptr;
  const char* end = nullptr;  // behind the last one
  const NamedTensor* entry = nullptr;
};

Extent extent_of(const NamedTensor& entry) {
  const torch::Tensor& tensor = entry.tensor;
  std::int64_t last = 0;
  for (std::int64_t d = 0; d < tensor.dim(); ++d) last += (tensor.size(d) - 1) * tensor.stride(d);
  const auto* begin = static_cast<const char*>(tensor.const_data_ptr());
  return {.begin = begin, .end = begin + (last + 1) * static_cast<std::int64_t>(tensor.itemsize()), .entry = &entry};
}

// Those of the marks, one for each byte from `begin` on, that belong to the tensor's elements.
torch::Tensor marks_of(const torch::Tensor& marks, const Extent& extent, const char* begin) {
  const torch::Tensor& tensor = extent.entry->tensor;
  const auto item = static_cast<std::int64_t>(tensor.itemsize());
  std::vector<std::int64_t> sizes = {item}, strides = {1};
  for (std::int64_t d = 0; d < tensor.dim(); ++d) {
    if (tensor.stride(d) == 0) continue;  // expanded: the same bytes again
    sizes.push_back(tensor.size(d));
    strides.push_back(tensor.stride(d) * item);
  }
  return marks.as_strided(sizes, strides, extent.begin - begin);
}

// Views can lie side by side, as the halves of a matrix's columns do, so that extents alone do not tell.
bool share_bytes(const Extent& a, const Extent& b) {
  const char* const begin = std::min(a.begin, b.begin);
  const torch::Tensor marks = at::zeros({std::max(a.end, b.end) - begin}, at::kBool);
  marks_of(marks, a, begin).fill_(true);
  return marks_of(marks, b, begin).any().item<bool>();
}

[[noreturn]] void refuse(const NamedTensor* a, const NamedTensor* b, std::string_view why, const std::string& model) {
  if (a > b) std::swap(a, b);  // in the order of the state
  raise<RequestError>("{}: '{}' and '{}' share memory, but {}; give each a storage of its own, by clone()", model,
                      a->name, b->name, why);
}

void refuse_overlaps(std::vector<Extent> extents, const std::string& model) {
  std::ranges::sort(extents, {}, &Extent::begin);
  for (std::size_t i = 0; i < extents.size(); ++i)
    for (std::size_t j = i + 1; j < extents.size() && extents[j].begin < extents[i].end; ++j)
      if (share_bytes(extents[i], extents[j]))
        refuse(extents[i].entry, extents[j].entry, "are not the same there", model);
}

class BuiltInNetwork : public Network {
 public:
  BuiltInNetwork(std::shared_ptr<Model> model, const NetworkOptions& options)
      : model_(std::move(model)), options_(options) {
    model_->seed(options.seed);
    model_->use_dropout(options.use_dropout);
    if (options.precision == Precision::float64) widen(BuiltInNetwork::state());
  }

  std::vector<NamedTensor> state() const override { return state_of(*model_); }

  torch::Tensor loss(const torch::Tensor& values, const torch::Tensor& labels) override {
    set_training(true);
    const Bf16Autocast autocast(options_.precision == Precision::bf16);
    torch::Tensor sum;
    for (const Model::Head& head : model_->heads(values)) {
      const torch::Tensor loss = cross_entropy(head.scores, labels, options_.loss);
      // The first one's bits are those of the loss alone.
      sum = sum.defined() ? sum + loss * head.weight : loss;
    }
    return sum;
  }

  torch::Tensor scores(const torch::Tensor& values) override {
    const torch::NoGradGuard no_grad;
    set_training(false);
    const Bf16Autocast autocast(options_.precision == Precision::bf16);
    return widened(model_->forward(values));
  }

  void set_gate(Gate gate) override { model_->set_gate(std::move(gate)); }
  void seed(std::uint64_t seed) override { model_->seed(seed); }

 private:
  // Goes through all modules, so not at each step.
  void set_training(bool on) {
    if (model_->is_training() != on) model_->train(on);
  }

  std::shared_ptr<Model> model_;
  NetworkOptions options_;
};

}  // namespace

Network::~Network() = default;

void Network::seed(std::uint64_t) {}

std::unique_ptr<Network> make_network(const ModelSpec& spec, const NetworkOptions& options) {
  torch::manual_seed(options.seed);
  if (spec.kind == ModelSpec::Kind::script) return load_script(spec.path, options);
  return std::make_unique<BuiltInNetwork>(make_model(spec), options);
}

std::vector<NamedTensor> state_of(const torch::nn::Module& module) {
  std::vector<NamedTensor> state;
  for (const auto& owner : module.named_modules()) {
    const std::string prefix = owner.key().empty() ? "" : owner.key() + ".";
    const void* const layer = owner.value().get();
    for (const auto& parameter : owner.value()->named_parameters(/*recurse=*/false))
      state.push_back({.name = prefix + parameter.key(),
                       .tensor = parameter.value(),
                       .trains = parameter.value().requires_grad(),
                       .layer = layer});
    for (const auto& buffer : owner.value()->named_buffers(/*recurse=*/false))
      state.push_back({.name = prefix + buffer.key(), .tensor = buffer.value(), .buffer = true, .layer = layer});
  }
  return state;
}

torch::Tensor widened(const torch::Tensor& tensor) {
  return tensor.scalar_type() == at::kBFloat16 ? tensor.to(at::kFloat) : tensor;
}

Place place_of(const torch::Tensor& tensor) {
  Place place{.begin = tensor.unsafeGetTensorImpl(),
              .type = tensor.scalar_type(),
              .sizes = tensor.sizes().vec(),
              .strides = {}};
  if (tensor.layout() != at::kStrided) return place;  // a sparse tensor has several storages
  place.strides = tensor.strides().vec();
  if (tensor.numel() > 0) place.begin = tensor.const_data_ptr();
  for (std::size_t d = 0; d < place.sizes.size(); ++d)
    if (place.sizes[d] == 1) place.strides[d] = 0;  // means nothing, and torch sets it to anything
  return place;
}

std::vector<NamedTensor> without_repeats(std::vector<NamedTensor> entries) {
  std::erase_if(entries, [](const NamedTensor& entry) { return !entry.tensor.defined(); });
  std::set<Place> seen;
  for (const bool buffers : {false, true})
    for (NamedTensor& entry : entries)
      if (entry.buffer == buffers && !seen.insert(place_of(entry.tensor)).second) entry.trains = entry.buffer = false;
  return entries;
}

void lay_out(const std::vector<NamedTensor>& state, Precision precision, const std::string& model) {
  std::map<Place, std::vector<const NamedTensor*>> places;
  for (const NamedTensor& entry : state) {
    if (entry.tensor.layout() != at::kStrided)
      raise<RequestError>("{}: '{}' is sparse: make it dense, by to_dense()", model, entry.name);
    places[place_of(entry.tensor)].push_back(&entry);
  }
  std::vector<Extent> extents;
  for (const auto& [place, names] : places) {
    const NamedTensor& first = *names.front();
    for (const NamedTensor* name : names)
      if (!name->tensor.is_same(first.tensor) && (name->tensor.requires_grad() || first.tensor.requires_grad()))
        refuse(&first, name, "not a gradient, being two tensors", model);
    if (first.tensor.numel() > 0) extents.push_back(extent_of(first));
  }
  refuse_overlaps(std::move(extents), model);
  for (const auto& [place, names] : places) {
    const torch::Tensor& first = names.front()->tensor;
    const bool widens = precision == Precision::float64 && first.is_floating_point();
    if (first.is_contiguous() && !widens) continue;
    first.set_data(first.detach().to(widens ? at::kDouble : first.scalar_type()).contiguous());
    for (const NamedTensor* name : names)
      if (!name->tensor.is_same(first)) name->tensor.set_data(first.detach());
  }
}

torch::Tensor cross_entropy(const torch::Tensor& scores, const torch::Tensor& labels, const LossOptions& options) {
  return at::cross_entropy_loss(widened(scores).flatten(0, -2), labels.flatten(), /*weight=*/{}, at::Reduction::Mean,
                                /*ignore_index=*/-100, options.label_smoothing);
}

std::vector<ParameterInfo> describe(const std::vector<NamedTensor>& trained) {
  std::vector<ParameterInfo> infos;
  int module = -1;
  std::string_view last;
  for (const NamedTensor& parameter : trained) {
    const std::string_view name = parameter.name;
    const std::size_t dot = name.rfind('.');
    const std::string_view owner = name.substr(0, dot == std::string_view::npos ? 0 : dot);
    if (module < 0 || owner != last) ++module;
    last = owner;
    infos.push_back(
        {parameter.name, static_cast<std::size_t>(parameter.tensor.numel()), module, parameter.tensor.sizes().vec()});
  }
  return infos;
}

Bf16Autocast::Bf16Autocast(bool on) : on_(on) {
  if (!on_) return;
  was_enabled_ = at::autocast::is_autocast_enabled(at::kCPU);
  was_type_ = at::autocast::get_autocast_dtype(at::kCPU);
  was_caching_ = at::autocast::is_autocast_cache_enabled();
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  // What it keeps is shared by all threads, and each layer reads its parameters once anyway.
  at::autocast::set_autocast_cache_enabled(false);
}

Bf16Autocast::~Bf16Autocast() {
  if (!on_) return;
  at::autocast::set_autocast_cache_enabled(was_caching_);
  at::autocast::set_autocast_dtype(at::kCPU, was_type_);
  at::autocast::set_autocast_enabled(at::kCPU, was_enabled_);
}

}  // namespace sumpter
