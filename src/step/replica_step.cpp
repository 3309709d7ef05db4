// A replica's side of the step: gradients go out, means come back, parameters are updated.
#include <algorithm>

#include "base/error.h"
#include "step/step.h"

namespace sumpter {
namespace {

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

struct ReplicaStep::ChunkState {
  std::size_t missing = 0;  // gradients that are not final yet
  Work work;
  bool complete = true;
  std::optional<Clock::time_point> launched;  // where that is traced
};

ReplicaStep::ReplicaStep(StepContext& context, Exchange& exchange, std::span<void* const> parameters)
    : context_(context),
      exchange_(exchange),
      row_(fmt::format("chunks of replica {}", exchange.rank())),
      parameters_(parameters.begin(), parameters.end()) {
  const std::vector<ParameterInfo>& infos = context.parameters();
  const StepOptions& options = context.options();
  const std::size_t needed = context.on_host() ? 0 : infos.size();
  if (parameters.size() != needed)
    raise<RequestError>("replica parameters: {} addresses were given, {} are needed", parameters.size(), needed);
  gradients_.assign(infos.size(), nullptr);
  up_ = GradientWire(infos, options.gradient_wire, options.error_feedback, "feedback.up.");
  if (context.on_host()) return;
  // The mean returns: it is rounded once more, by every replica alike.
  down_ = GradientWire(infos, options.gradient_wire, options.error_feedback, "feedback.down.");
  optimizer_.emplace(infos, options.type, options.optimizer, options.schedule);
  squares_.resize(context.blocks_.size());
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

bool ReplicaStep::tracing() const { return context_.options_.trace != nullptr && context_.options_.trace->recording(); }

void ReplicaStep::begin_step(const StepStart& start) {
  finish();
  start_ = start;
  context_.number_.store(start.number, std::memory_order_relaxed);  // see HostUpdate::consume
  under_way_ = true;
  finished_.clear();
  std::fill(gradients_.begin(), gradients_.end(), nullptr);
  next_launch_ = 0;
  for (std::size_t chunk = 0; chunk < chunks_.size(); ++chunk) {
    chunks_[chunk].missing = context_.chunks_[chunk].parameters.size();
    chunks_[chunk].complete = false;
  }
}

void ReplicaStep::gradient_final(int parameter, void* data) {
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
  // A replica without rows sends nothing, and owes what it owed.
  if (start_.rows > 0) round_to_wire(chunk, up_);
  std::vector<Part> parts;
  parts.reserve(members.size());
  for (const int parameter : members) parts.push_back({gradients_[parameter], context_.parameters_[parameter].count});
  AllReduceOptions options{.type = context_.options_.type, .reduction = Reduction::weighted_mean, .rows = start_.rows};
  if (!context_.host_updates_.empty()) options.consumer = context_.host_updates_[chunk].get();
  if (tracing()) chunks_[chunk].launched = Clock::now();
  chunks_[chunk].work = exchange_.begin_all_reduce(parts, options);
}

void ReplicaStep::round_to_wire(std::size_t chunk, GradientWire& wire) {
  if (!wire.lossy()) return;
  const TraceSpan span(context_.options_.trace, "round to wire", {"chunk", static_cast<std::int64_t>(chunk)});
  for (const int parameter : context_.chunks_[chunk].parameters)
    wire.round(static_cast<std::size_t>(parameter), gradients_[parameter]);
}

void ReplicaStep::backward_done() {
  const Timed timed(seconds_in_exchange_);
  if (!order_settled_) settle_order();
  if (start_.rows == 0) {
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

// A replica without rows has no gradients of its own, but it needs the mean of the others' wherever means are written
// back.
void ReplicaStep::provide_room_for_results() {
  if (context_.on_host() && !context_.two_pass_) return;
  if (room_.empty()) room_ = ParameterArrays(context_.parameters_, context_.options_.type);
  for (std::size_t i = 0; i < gradients_.size(); ++i) gradients_[i] = room_.at(i);
}

void ReplicaStep::complete(std::size_t chunk) {
  ChunkState& state = chunks_[chunk];
  if (state.complete) return;
  const Timed timed(seconds_in_exchange_);
  state.work.wait();
  if (state.launched) {
    context_.options_.trace->flight(row_, "chunk", start_.number * chunks_.size() + chunk, *state.launched,
                                    Clock::now(), {"chunk", static_cast<std::int64_t>(chunk)},
                                    {"bytes", static_cast<std::int64_t>(context_.chunks_[chunk].bytes)});
    state.launched.reset();
  }
  round_to_wire(chunk, down_);
  if (!context_.on_host() && !context_.two_pass_) update_chunk(chunk);
  state.work = Work();
  state.complete = true;
  ++chunks_exchanged_;
}

void ReplicaStep::update_chunk(std::size_t chunk) {
  const TraceSpan span(context_.options_.trace, "update", {"chunk", static_cast<std::int64_t>(chunk)});
  for (const int parameter : context_.chunks_[chunk].parameters) {
    const auto index = static_cast<std::size_t>(parameter);
    update({.parameter = index, .begin = 0, .count = context_.parameters_[index].count}, 1);
  }
}

// Of the replica's own parameters, or of the shared ones.
void ReplicaStep::update(const Stretch& stretch, double gradient_scale) {
  const ElementType type = context_.options_.type;
  const void* const gradient = element(gradients_[stretch.parameter], stretch.begin, type);
  const UpdateFacts facts{.number = start_.number, .gradient_scale = gradient_scale};
  if (context_.on_host()) {
    const HostParameters& shared = context_.host_parameters_;
    context_.optimizer_->update(stretch, gradient, shared.value(stretch.parameter, stretch.begin), facts);
    shared.publish(stretch);
  } else {
    optimizer_->update(stretch, gradient, element(parameters_[stretch.parameter], stretch.begin, type), facts);
  }
}

// With update=device each replica does all of it; with update=host each its share of the blocks.
void ReplicaStep::second_pass() {
  const Timed timed(seconds_in_exchange_);
  const TraceSpan span(context_.options_.trace, "update", {"chunks", static_cast<std::int64_t>(chunks_.size())});
  const GradientBlocks& blocks = context_.blocks_;
  const BlockRange own = context_.on_host() ? blocks.share(exchange_.rank(), exchange_.members()) : blocks.all();
  const double scale = context_.options_.optimizer.clip_norm > 0 ? find_clip_scale(own) : 1;
  blocks.for_each_stretch(own, [&](const Stretch& stretch, std::size_t) { update(stretch, scale); });
  if (context_.on_host()) exchange_.barrier();
}

double ReplicaStep::find_clip_scale(BlockRange own) {
  std::vector<double>& squares = context_.on_host() ? context_.squares_ : squares_;
  sum_squares(context_.blocks_, own, gradients_, context_.options_.type, squares);
  if (context_.on_host()) exchange_.barrier();
  norm_ = norm_of(squares);
  return clip_scale(norm_, context_.options_.optimizer.clip_norm);
}

void ReplicaStep::wait_for_parameter(int parameter) {
  if (!under_way_) return;
  if (context_.two_pass_) {
    finish();
  } else {
    complete(context_.chunk_of_[parameter]);
  }
}

void ReplicaStep::finish() {
  if (!under_way_) return;
  for (std::size_t chunk = 0; chunk < chunks_.size(); ++chunk) complete(chunk);
  if (context_.two_pass_) second_pass();
  under_way_ = false;
}

std::vector<StateArray> ReplicaStep::state() {
  std::vector<StateArray> state;
  if (optimizer_) optimizer_->add_to(state);
  up_.add_to(state);
  down_.add_to(state);
  return state;
}

std::uint64_t ReplicaStep::overflows() const {
  return up_.overflows() + (exchange_.rank() == 0 ? down_.overflows() : 0);
}

}  // namespace sumpter
