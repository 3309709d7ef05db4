#include "train/step_bench.h"

#include <ATen/Parallel.h>

#include <optional>
#include <vector>

#include "base/error.h"
#include "input/synthetic.h"
#include "train/memory.h"
#include "train/replica.h"

namespace sumpter {
namespace {

constexpr kernels::Sgd kOptimizer{.learning_rate = 0.01F, .momentum = 0.9F};

// Rows of a synthetic set, kept.
class FixedRows {
 public:
  FixedRows(const ModelSpec& model, std::size_t rows, int rank)
      : shape_(usual_shape(model)), images_(rows * shape_.bytes()), labels_(rows) {
    const auto data = make_synthetic({.rows = rows, .shape = shape_, .seed = static_cast<std::uint64_t>(rank)});
    for (std::size_t i = 0; i < rows; ++i)
      labels_[i] = data->get({.index = i}, std::span(images_).subspan(i * shape_.bytes(), shape_.bytes()));
  }
  Rows rows() const { return {images_, labels_, shape_}; }

 private:
  ImageShape shape_;
  std::vector<std::uint8_t> images_;
  std::vector<std::int64_t> labels_;
};

class ExchangingReplica : public BenchReplica {
 public:
  ExchangingReplica(std::shared_ptr<Model> model, StepContext& context, Exchange exchange, FixedRows rows)
      : exchange_(std::move(exchange)), replica_(std::move(model), context, exchange_), rows_(std::move(rows)) {}
  void step() override {
    replica_.forward(rows_.rows());
    replica_.backward();
    replica_.finish();
  }

 private:
  Exchange exchange_;
  Replica replica_;
  FixedRows rows_;
};

class LonelyReplica : public BenchReplica {
 public:
  LonelyReplica(std::shared_ptr<Model> model, FixedRows rows)
      : model_(std::move(model)), parameters_(parameters_of(*model_)), rows_(std::move(rows)) {
    for (const Parameter& parameter : parameters_)
      momentum_.emplace_back(static_cast<std::size_t>(parameter.tensor.numel()));
  }
  void step() override {
    mean_loss(*model_, rows_.rows()).backward();
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const torch::Tensor& parameter = parameters_[i].tensor;
      kernels::sgd(kOptimizer, parameter.grad().const_data_ptr<float>(), parameter.mutable_data_ptr<float>(),
                   momentum_[i].data(), momentum_[i].size());
      parameter.mutable_grad().reset();
    }
  }

 private:
  std::shared_ptr<Model> model_;
  std::vector<Parameter> parameters_;
  std::vector<std::vector<float>> momentum_;
  FixedRows rows_;
};

}  // namespace

struct StepBench::State {
  explicit State(const StepBenchOptions& of)
      : options(of), models(make_models(options.model, /*seed=*/0, options.plan)) {
    if (!options.exchange) return;
    context = make_context(*models.front(), options.plan, kOptimizer);
    group.emplace(
        GroupOptions{.members = options.plan.replicas, .piece = options.plan.piece, .reducers = options.plan.reducers});
  }

  StepBenchOptions options;
  std::vector<std::shared_ptr<Model>> models;
  std::unique_ptr<StepContext> context;
  std::optional<Group> group;
};

StepBench::StepBench(const StepBenchOptions& options) {
  validate(options.plan);
  keep_freed_memory();
  state_ = std::make_unique<State>(options);
}

StepBench::~StepBench() = default;

std::unique_ptr<BenchReplica> StepBench::join(int rank) {
  at::set_num_threads(state_->options.threads_per_replica);
  std::shared_ptr<Model> model = state_->models.at(static_cast<std::size_t>(rank));
  FixedRows rows(state_->options.model, state_->options.rows, rank);
  if (!state_->options.exchange) return std::make_unique<LonelyReplica>(std::move(model), std::move(rows));
  return std::make_unique<ExchangingReplica>(std::move(model), *state_->context, state_->group->join(rank),
                                             std::move(rows));
}

}  // namespace sumpter
