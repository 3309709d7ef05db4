#include "train/step_bench.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "base/error.h"
#include "input/synthetic.h"
#include "kernels/kernels.h"
#include "train/memory.h"
#include "train/replica.h"

namespace sumpter {
namespace {

constexpr OptimizerOptions kOptimizer{.learning_rate = 0.01, .momentum = 0.9};
constexpr Schedule kSchedule{};

// Of the made-up rows.
int classes_of(const ModelSpec& model) { return static_cast<int>(std::min<std::int64_t>(model.classes(), 10)); }

// Rows of a synthetic set, kept.
class FixedRows {
 public:
  FixedRows(const ImageShape& shape, int classes, std::size_t rows, int rank)
      : shape_(shape), images_(rows * shape_.bytes()), labels_(rows) {
    const auto data =
        make_synthetic({.rows = rows, .shape = shape_, .classes = classes, .seed = static_cast<std::uint64_t>(rank)});
    for (std::size_t i = 0; i < rows; ++i)
      labels_[i] = data->get({.index = i}, std::span(images_).subspan(i * shape_.bytes(), shape_.bytes()));
  }
  Rows rows() const { return {.images = images_, .labels = labels_, .shape = shape_}; }

 private:
  ImageShape shape_;
  std::vector<std::uint8_t> images_;
  std::vector<std::int64_t> labels_;
};

class ExchangingReplica : public BenchReplica {
 public:
  ExchangingReplica(Network& network, StepContext& context, Exchange exchange, const InputOptions& input,
                    FixedRows rows)
      : exchange_(std::move(exchange)),
        replica_(network, context, exchange_, {.input = input}),
        rows_(std::move(rows)) {}
  void step() override {
    replica_.forward(rows_.rows(), step_++);
    replica_.backward();
    replica_.finish();
  }

 private:
  Exchange exchange_;
  Replica replica_;
  FixedRows rows_;
  std::uint64_t step_ = 0;
};

class LonelyReplica : public BenchReplica {
 public:
  LonelyReplica(Network& network, const InputOptions& input, FixedRows rows)
      : network_(network), parameters_(trained(network)), input_(input), rows_(std::move(rows)) {
    for (const NamedTensor& parameter : parameters_)
      momentum_.emplace_back(static_cast<std::size_t>(parameter.tensor.numel()));
  }
  void step() override {
    const Inputs inputs = to_inputs(rows_.rows(), input_);
    network_.loss(inputs.values, inputs.labels).backward();
    const kernels::OptimizerStep optimizer{
        .kind = kOptimizer.kind, .learning_rate = kOptimizer.learning_rate, .momentum = kOptimizer.momentum};
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const torch::Tensor& parameter = parameters_[i].tensor;
      kernels::optimize(optimizer, kernels::OptimizerArrays<float>{.gradient = parameter.grad().const_data_ptr<float>(),
                                                                   .parameter = parameter.mutable_data_ptr<float>(),
                                                                   .first = momentum_[i].data(),
                                                                   .second = nullptr,
                                                                   .count = momentum_[i].size()});
      parameter.mutable_grad().reset();
    }
  }

 private:
  Network& network_;
  std::vector<NamedTensor> parameters_;
  std::vector<std::vector<float>> momentum_;
  InputOptions input_;
  FixedRows rows_;
};

}  // namespace

struct StepBench::State {
  explicit State(const StepBenchOptions& of)
      : options(of), input(input_options(of.model, ElementType::u8, /*image_size=*/0, Precision::float32)) {
    for (int rank = 0; rank < options.plan.replicas; ++rank) networks.push_back(make_network(options.model, {}));
    unify(networks, options.plan.update);
    if (!options.exchange) return;
    context = make_context(*networks.front(), {.plan = options.plan, .optimizer = kOptimizer, .schedule = kSchedule});
    group.emplace(
        GroupOptions{.members = options.plan.replicas, .piece = options.plan.piece, .reducers = options.plan.reducers});
  }

  StepBenchOptions options;
  InputOptions input;
  std::vector<std::unique_ptr<Network>> networks;
  std::unique_ptr<StepContext> context;
  std::optional<Group> group;
};

StepBench::StepBench(const StepBenchOptions& options) {
  validate(options.plan);
  StepBenchOptions whole = options;
  if (whole.shape == ImageShape{}) whole.shape = usual_shape(options.model);
  check_input(whole.model, whole.shape, classes_of(whole.model));
  keep_freed_memory();
  state_ = std::make_unique<State>(whole);
}

StepBench::~StepBench() = default;

std::unique_ptr<BenchReplica> StepBench::join(int rank) {
  State& state = *state_;
  at::set_num_threads(state.options.threads_per_replica);
  Network& network = *state.networks.at(static_cast<std::size_t>(rank));
  FixedRows rows(state.options.shape, classes_of(state.options.model), state.options.rows, rank);
  if (!state.options.exchange) return std::make_unique<LonelyReplica>(network, state.input, std::move(rows));
  return std::make_unique<ExchangingReplica>(network, *state.context, state.group->join(rank), state.input,
                                             std::move(rows));
}

}  // namespace sumpter
