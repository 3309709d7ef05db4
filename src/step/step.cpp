#include "step/step.h"

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"

namespace sumpter {
namespace {

std::vector<std::vector<float>> make_momentum(const std::vector<ParameterInfo>& parameters, const kernels::Sgd& sgd) {
  std::vector<std::vector<float>> momentum(parameters.size());
  if (sgd.momentum == 0.0F) return momentum;
  for (std::size_t i = 0; i < parameters.size(); ++i) momentum[i].assign(parameters[i].count, 0.0F);
  return momentum;
}

void require_addresses(std::span<float* const> addresses, std::size_t expected, std::string_view what) {
  if (addresses.size() != expected)
    raise<RequestError>("{}: {} addresses were given, {} are needed", what, addresses.size(), expected);
}

// Adds the time of its own life to a total.
class Timed {
 public:
  explicit Timed(double& total) : total_(total), start_(Clock::now()) {}
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;
  ~Timed() { total_ += seconds_since(start_); }

 private:
  double& total_;
  Clock::time_point start_;
};

}  // namespace

// The optimizer in the summing thread: every sum goes straight into the shared parameters.
class StepContext::HostUpdate : public SumConsumer {
 public:
  HostUpdate(StepContext& context, const Chunk& chunk) : context_(context), chunk_(chunk) {}

  void consume(std::size_t part, std::size_t begin_in_part, std::span<const float> sum) override {
    const int parameter = chunk_.parameters[part];
    std::vector<float>& momentum = context_.host_momentum_[parameter];
    kernels::sgd(context_.options_.optimizer, sum.data(), context_.host_parameters_[parameter] + begin_in_part,
                 momentum.empty() ? nullptr : momentum.data() + begin_in_part, sum.size());
  }

 private:
  StepContext& context_;
  const Chunk& chunk_;
};

StepContext::StepContext(std::vector<ParameterInfo> parameters, const StepOptions& options,
                         std::span<float* const> host_parameters)
    : parameters_(std::move(parameters)),
      options_(options),
      host_parameters_(host_parameters.begin(), host_parameters.end()) {
  if (parameters_.empty()) raise<RequestError>("the model has no parameters to train");
  require_addresses(host_parameters, options.update == Update::host ? parameters_.size() : 0, "host parameters");
  if (options.update == Update::host) host_momentum_ = make_momentum(parameters_, options.optimizer);
}

StepContext::~StepContext() = default;

void StepContext::settle_order(std::span<const int> finished) {
  chunks_ = make_chunks(parameters_, finished, options_.chunk);
  chunk_of_.resize(parameters_.size());
  for (std::size_t chunk = 0; chunk < chunks_.size(); ++chunk) {
    for (const int parameter : chunks_[chunk].parameters) chunk_of_[parameter] = chunk;
    if (options_.update == Update::host) host_updates_.push_back(std::make_unique<HostUpdate>(*this, chunks_[chunk]));
  }
}

struct ReplicaStep::ChunkState {
  std::size_t missing = 0;  // gradients that are not final yet
  Work work;
  bool complete = true;
};

ReplicaStep::ReplicaStep(StepContext& context, Exchange& exchange, std::span<float* const> parameters)
    : context_(context), exchange_(exchange), parameters_(parameters.begin(), parameters.end()) {
  const bool on_device = context.options().update == Update::device;
  require_addresses(parameters, on_device ? context.parameters().size() : 0, "replica parameters");
  if (on_device) momentum_ = make_momentum(context.parameters(), context.options().optimizer);
  gradients_.assign(context.parameters().size(), nullptr);
}

ReplicaStep::~ReplicaStep() {
  if (!under_way_) return;
  exchange_.abort("the replica stopped in the middle of a step");
  for (ChunkState& state : chunks_) {
    try {
      if (state.work.valid()) state.work.wait();
    } catch (...) {  // said above, or thrown before; once it is out, nobody uses the gradients any more
      continue;
    }
  }
}

void ReplicaStep::begin_step(std::uint64_t rows) {
  finish();
  rows_ = rows;
  under_way_ = true;
  finished_.clear();
  std::fill(gradients_.begin(), gradients_.end(), nullptr);
  next_launch_ = 0;
  for (std::size_t chunk = 0; chunk < chunks_.size(); ++chunk) {
    chunks_[chunk].missing = context_.chunks_[chunk].parameters.size();
    chunks_[chunk].complete = false;
  }
}

void ReplicaStep::gradient_final(int parameter, float* data) {
  const std::string& name = context_.parameters_.at(parameter).name;
  if (!under_way_) raise<RequestError>("a gradient of '{}' was announced before begin_step", name);
  if (gradients_[parameter] != nullptr)
    raise<RequestError>("a second gradient of '{}' was announced in one step; is its layer used twice?", name);
  gradients_[parameter] = data;
  finished_.push_back(parameter);
  if (!order_settled_) return;
  --chunks_[context_.chunk_of_[parameter]].missing;
  launch_ready_chunks();
}

// In order, so that every replica numbers its operations alike whatever order its own backward took.
void ReplicaStep::launch_ready_chunks() {
  while (next_launch_ < chunks_.size() && chunks_[next_launch_].missing == 0) launch(next_launch_++);
}

void ReplicaStep::launch(std::size_t chunk) {
  const std::vector<int>& members = context_.chunks_[chunk].parameters;
  std::vector<Part> parts;
  parts.reserve(members.size());
  for (const int parameter : members) parts.push_back({gradients_[parameter], context_.parameters_[parameter].count});
  AllReduceOptions options{.type = ElementType::f32, .reduction = Reduction::weighted_mean, .rows = rows_};
  if (context_.options_.update == Update::host) options.consumer = context_.host_updates_[chunk].get();
  chunks_[chunk].work = exchange_.begin_all_reduce(parts, options);
}

void ReplicaStep::backward_done() {
  const Timed timed(seconds_in_exchange_);
  if (!order_settled_) settle_order();
  if (rows_ == 0) {
    provide_room_for_results();
  } else {
    require_all_gradients();
  }
  for (ChunkState& state : chunks_) state.missing = 0;
  launch_ready_chunks();
}

// Rank 0 has rows whenever a batch has any: its order serves all. The barrier makes it visible to the others.
void ReplicaStep::settle_order() {
  if (exchange_.rank() == 0) context_.settle_order(finished_);
  exchange_.barrier();
  order_settled_ = true;
  chunks_.resize(context_.chunks_.size());
  for (ChunkState& state : chunks_) state.complete = false;
}

void ReplicaStep::require_all_gradients() const {
  for (std::size_t i = 0; i < gradients_.size(); ++i) {
    if (gradients_[i] == nullptr)
      raise<RequestError>("parameter '{}' got no gradient; is it used in the loss?", context_.parameters_[i].name);
  }
}

// A replica without rows has no gradients of its own, but with update=device it needs the mean of the others'.
void ReplicaStep::provide_room_for_results() {
  if (context_.options_.update == Update::host) return;
  if (room_.empty()) {
    for (const ParameterInfo& parameter : context_.parameters_) room_.emplace_back(parameter.count);
  }
  for (std::size_t i = 0; i < gradients_.size(); ++i) gradients_[i] = room_[i].data();
}

void ReplicaStep::complete(std::size_t chunk) {
  ChunkState& state = chunks_[chunk];
  if (state.complete) return;
  const Timed timed(seconds_in_exchange_);
  state.work.wait();
  if (context_.options_.update == Update::device) {
    for (const int parameter : context_.chunks_[chunk].parameters) {
      std::vector<float>& momentum = momentum_[parameter];
      kernels::sgd(context_.options_.optimizer, gradients_[parameter], parameters_[parameter],
                   momentum.empty() ? nullptr : momentum.data(), context_.parameters_[parameter].count);
    }
  }
  state.work = Work();
  state.complete = true;
  ++chunks_exchanged_;
}

void ReplicaStep::wait_for_parameter(int parameter) {
  if (!under_way_) return;
  complete(context_.chunk_of_[parameter]);
}

void ReplicaStep::finish() {
  if (!under_way_) return;
  for (std::size_t chunk = 0; chunk < chunks_.size(); ++chunk) complete(chunk);
  under_way_ = false;
}

}  // namespace sumpter
