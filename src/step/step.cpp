// What the replicas share: checks, chunks, and the update in the summing thread.
#include "step/step.h"

#include "base/error.h"
#include "spec/optimizer.h"

namespace sumpter {
namespace {

bool needs_two_passes(const StepOptions& options) {
  const bool host = options.update == Update::host;
  return options.optimizer.clip_norm > 0 ||
         (host && (options.type == ElementType::f64 || options.parameter_wire == WireFormat::i8));
}

void require_options(const StepOptions& options) {
  if (options.type != ElementType::f32 && options.type != ElementType::f64)
    raise<RequestError>("a step of {} parameters was asked for; it works on f32 or f64", name_of(options.type));
  const auto require_f32 = [&](std::string_view key, WireFormat wire) {
    if (wire != WireFormat::f32 && options.type != ElementType::f32)
      raise<RequestError>("{}: {} rounds f32 only, and the parameters are {}; write f32", key, name_of(wire),
                          name_of(options.type));
  };
  require_f32("gradient_wire", options.gradient_wire);
  require_f32("parameter_wire", options.parameter_wire);
  if (options.parameter_wire != WireFormat::f32 && options.update != Update::host)
    raise<RequestError>("parameter_wire: {} needs update host: with update device no parameters travel",
                        name_of(options.parameter_wire));
  if (options.error_feedback && options.gradient_wire == WireFormat::f32)
    raise<RequestError>("error_feedback: it needs a gradient_wire that rounds; f32 loses nothing");
  validate(options.optimizer);
  validate(options.schedule);
}

void require_shapes(std::span<const ParameterInfo> parameters) {
  if (parameters.empty()) raise<RequestError>("the model has no parameters to train");
  for (const ParameterInfo& parameter : parameters) {
    std::size_t count = 1;
    for (const std::int64_t size : parameter.shape) count *= static_cast<std::size_t>(size);
    if (count != parameter.count)
      raise<RequestError>("parameter '{}': its shape holds {} elements, its array {}", parameter.name, count,
                          parameter.count);
  }
}

// The parameters, after all that can be refused before anything is made of them has been.
std::vector<ParameterInfo> checked(std::vector<ParameterInfo> parameters, const StepOptions& options,
                                   std::size_t addresses) {
  require_options(options);
  require_shapes(parameters);
  require_fit(parameters, options.chunk);
  const std::size_t needed = options.update == Update::host ? parameters.size() : 0;
  if (addresses != needed)
    raise<RequestError>("host parameters: {} addresses were given, {} are needed", addresses, needed);
  return parameters;
}

}  // namespace

// The optimizer in the summing thread: every sum goes straight into the shared parameters. A trace shows it as part of
// the exchange's "sum": it is called for too few elements at a time to be worth a span of its own.
class StepContext::HostUpdate : public SumConsumer {
 public:
  HostUpdate(StepContext& context, const Chunk& chunk) : context_(context), chunk_(chunk) {}

  void consume(std::size_t part, std::size_t begin_in_part, std::span<const float> sum) override {
    const Stretch stretch{
        .parameter = static_cast<std::size_t>(chunk_.parameters[part]), .begin = begin_in_part, .count = sum.size()};
    const HostParameters& parameters = context_.host_parameters_;
    // All replicas store the step's number before they announce its first gradient, and none begins the next step
    // before all sums of this one were consumed (finish waits for them): whoever sums reads this step's number, which
    // the exchange's signals have made visible.
    const std::uint64_t number = context_.number_.load(std::memory_order_relaxed);
    context_.optimizer_->update(stretch, sum.data(), parameters.value(stretch.parameter, stretch.begin),
                                {.number = number});
    parameters.publish(stretch);
  }

 private:
  StepContext& context_;
  const Chunk& chunk_;
};

StepContext::StepContext(std::vector<ParameterInfo> parameters, const StepOptions& options,
                         std::span<void* const> host_parameters)
    : parameters_(checked(std::move(parameters), options, host_parameters.size())),
      options_(options),
      two_pass_(needs_two_passes(options)),
      blocks_(parameters_) {
  if (!on_host()) return;
  optimizer_.emplace(parameters_, options.type, options.optimizer, options.schedule);
  host_parameters_ = HostParameters(parameters_, options.type, options.parameter_wire, host_parameters);
  squares_.resize(blocks_.size());
}

StepContext::~StepContext() = default;

void* StepContext::parameter(std::size_t index) {
  if (!on_host())
    raise<RequestError>("parameter {} of the context was asked for; with update device it has none", index);
  if (index >= parameters_.size())
    raise<RequestError>("parameter {} of the context was asked for; there are {}", index, parameters_.size());
  return host_parameters_.value(index);
}

void StepContext::refresh() { host_parameters_.publish_all(); }

std::vector<StateArray> StepContext::state() {
  std::vector<StateArray> state;
  if (optimizer_) optimizer_->add_to(state);
  return state;
}

void StepContext::settle_order(std::span<const int> finished) {
  chunks_ = make_chunks(parameters_, finished, options_.chunk, options_.type);
  chunk_of_.resize(parameters_.size());
  for (std::size_t chunk = 0; chunk < chunks_.size(); ++chunk) {
    for (const int parameter : chunks_[chunk].parameters) chunk_of_[parameter] = chunk;
    if (on_host() && !two_pass_) host_updates_.push_back(std::make_unique<HostUpdate>(*this, chunks_[chunk]));
  }
}

}  // namespace sumpter
