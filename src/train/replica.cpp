#include "train/replica.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/functional/loss.h>
#include <torch/types.h>

#include <algorithm>

#include "base/error.h"
#include "input/random.h"

namespace sumpter {
namespace {

std::vector<void*> device_addresses(const StepContext& context, const std::vector<NamedTensor>& parameters) {
  return context.options().update == Update::device ? addresses_of(parameters) : std::vector<void*>();
}

Rows rows_of(const Rows& rows, RowRange part) {
  const std::size_t row_bytes = rows.images.size() / rows.labels.size();
  Rows own = rows;
  own.images = rows.images.subspan(part.begin * row_bytes, part.rows * row_bytes);
  own.labels = rows.labels.subspan(part.begin, part.rows);
  return own;
}

}  // namespace

// What autograd calls when a parameter's gradient has been accumulated.
class Replica::GradientHook : public torch::autograd::PostAccumulateGradHook {
 public:
  GradientHook(Replica& replica, int parameter) : replica_(replica), parameter_(parameter) {}
  void operator()(const torch::autograd::Variable&) override { replica_.gradient_final(parameter_); }

 private:
  Replica& replica_;
  int parameter_;
};

Replica::Replica(Network& network, StepContext& context, Exchange& exchange, const ReplicaOptions& options)
    : network_(network),
      options_(options),
      rank_(exchange.rank()),
      parameters_(trained(network)),
      buffers_(buffers_of(network)),
      step_(context, exchange, device_addresses(context, parameters_)) {
  network_.set_gate([this](const void* layer) { wait_for(layer); });
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    torch::autograd::impl::set_post_acc_grad_hooks(parameters_[i].tensor,
                                                   std::make_unique<GradientHook>(*this, static_cast<int>(i)));
  }
}

Replica::~Replica() {
  network_.set_gate({});
  for (const NamedTensor& parameter : parameters_)
    torch::autograd::impl::set_post_acc_grad_hooks(parameter.tensor, nullptr);
}

double Replica::forward(const Rows& rows, std::uint64_t step) {
  number_ = step;
  rows_ = rows.labels.size();
  if (rows_ == 0) return 0;
  before_forward_ = current_extras();
  const std::size_t parts = std::min<std::size_t>(static_cast<std::size_t>(options_.accumulate), rows_);
  double loss = 0;
  for (std::size_t part = 0; part < parts; ++part) {
    if (part > 0) {
      finish();
      const TraceSpan span(options_.trace, "backward", {"step", static_cast<std::int64_t>(step)});
      std::exchange(loss_, {}).backward();
    }
    loss += forward_part(rows, split_rows(rows_, parts, part), static_cast<int>(part));
  }
  return loss;
}

double Replica::forward_part(const Rows& rows, RowRange part, int number) {
  const TraceSpan span(options_.trace, "forward", {"step", static_cast<std::int64_t>(number_)});
  network_.seed(stream_seed(stream_seed(options_.seed, number_),
                            static_cast<std::uint64_t>(rank_) * kMaxAccumulate + static_cast<std::uint64_t>(number)));
  const Inputs inputs = to_inputs(rows_of(rows, part), options_.input);
  loss_ = network_.loss(inputs.values, inputs.labels);
  if (loss_.numel() != 1)
    raise<Error>("the loss has {} numbers: it must be one, the mean over the rows", loss_.numel());
  // The gradient of the mean over all rows is the sum of the parts' means, each times its share.
  if (part.rows != rows_) loss_ = loss_ * (static_cast<double>(part.rows) / static_cast<double>(rows_));
  return loss_.item<double>();
}

void Replica::finish() {
  step_.finish();
  if (!std::exchange(holds_gradients_, false)) return;
  for (const NamedTensor& parameter : parameters_) parameter.tensor.mutable_grad().reset();
}

void Replica::backward() {
  step_.begin_step({.rows = rows_, .number = number_});
  holds_gradients_ = true;
  before_forward_.reset();
  if (rows_ != 0) {
    const TraceSpan span(options_.trace, "backward", {"step", static_cast<std::int64_t>(number_)});
    announcing_ = true;
    std::exchange(loss_, {}).backward();
    announcing_ = false;
  }
  step_.backward_done();
}

Score Replica::evaluate(const Rows& rows) {
  const TraceSpan span(options_.trace, "evaluate");
  const torch::NoGradGuard no_grad;
  const Inputs inputs = to_inputs(rows, options_.input);
  const torch::Tensor scores = network_.scores(inputs.values).flatten(0, -2);
  const torch::Tensor labels = inputs.labels.flatten();
  const auto sum = torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum);
  const double loss = torch::nn::functional::cross_entropy(scores, labels, sum).item<double>();
  const auto predictions = static_cast<std::uint64_t>(labels.numel());
  return {.loss = loss / static_cast<double>(predictions / rows.labels.size()),
          .right = static_cast<std::uint64_t>(scores.argmax(1).eq(labels).sum().item<std::int64_t>()),
          .predictions = predictions};
}

ReplicaExtras Replica::current_extras() const {
  ReplicaExtras extras{.buffers = buffers_, .generator = std::nullopt};
  for (NamedTensor& buffer : extras.buffers) buffer.tensor = buffer.tensor.detach().clone();
  if (options_.default_generator) extras.generator = generator_state();
  return extras;
}

ReplicaExtras Replica::extras() const { return before_forward_ ? *before_forward_ : current_extras(); }

void Replica::withdraw() {
  if (!before_forward_) return;
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < buffers_.size(); ++i) buffers_[i].tensor.copy_(before_forward_->buffers[i].tensor);
  if (before_forward_->generator) set_generator_state(*before_forward_->generator);
  before_forward_.reset();
  loss_ = torch::Tensor();
}

void Replica::wait_for(const void* layer) {
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (layer == nullptr || parameters_[i].layer == layer) step_.wait_for_parameter(static_cast<int>(i));
}

void Replica::gradient_final(int parameter) {
  if (!announcing_) return;
  const NamedTensor& own = parameters_[static_cast<std::size_t>(parameter)];
  torch::Tensor& gradient = own.tensor.mutable_grad();
  if (gradient.scalar_type() != own.tensor.scalar_type())
    raise<Error>("parameter '{}': its gradient has another type than itself", own.name);
  if (!gradient.is_contiguous()) gradient = gradient.contiguous();
  step_.gradient_final(parameter, gradient.mutable_data_ptr());
}

BorrowedBuffers::BorrowedBuffers(const Network& network, const Network& lender) : buffers_(buffers_of(network)) {
  const torch::NoGradGuard no_grad;
  const std::vector<NamedTensor> lent = buffers_of(lender);
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    own_.push_back(buffers_[i].tensor.clone());
    buffers_[i].tensor.copy_(lent[i].tensor);
  }
}

BorrowedBuffers::~BorrowedBuffers() {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < buffers_.size(); ++i) buffers_[i].tensor.copy_(own_[i]);
}

torch::Tensor generator_state() {
  const at::Generator generator = at::detail::getDefaultCPUGenerator();
  return generator.get_state();
}

void set_generator_state(const torch::Tensor& state) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  generator.set_state(state);
}

std::vector<NamedTensor> trained(const Network& network) {
  std::vector<NamedTensor> parameters = network.state();
  std::erase_if(parameters, [](const NamedTensor& entry) { return !entry.trains; });
  return parameters;
}

std::vector<NamedTensor> buffers_of(const Network& network) {
  std::vector<NamedTensor> buffers = network.state();
  std::erase_if(buffers, [](const NamedTensor& entry) { return !entry.buffer; });
  return buffers;
}

std::vector<void*> addresses_of(const std::vector<NamedTensor>& tensors) {
  std::vector<void*> addresses;
  for (const NamedTensor& entry : tensors) addresses.push_back(entry.tensor.mutable_data_ptr());
  return addresses;
}

void unify(std::span<const std::unique_ptr<Network>> networks, Update update) {
  const torch::NoGradGuard no_grad;
  const std::vector<NamedTensor> first = networks.front()->state();
  for (std::size_t rank = 1; rank < networks.size(); ++rank) {
    const std::vector<NamedTensor> own = networks[rank]->state();
    if (own.size() != first.size())
      raise<RequestError>(
          "the model of replica {} has {} tensors and that of replica 0 has {}: a factory must make "
          "the same model every time",
          rank, own.size(), first.size());
    for (std::size_t i = 0; i < own.size(); ++i) {
      if (own[i].name != first[i].name || own[i].tensor.sizes() != first[i].tensor.sizes())
        raise<RequestError>(
            "the model of replica {} has '{}' where that of replica 0 has '{}': a factory must make "
            "the same model every time",
            rank, own[i].name, first[i].name);
      torch::Tensor tensor = own[i].tensor;
      if (update == Update::host && own[i].trains) {
        tensor.set_data(first[i].tensor.detach());
      } else {
        tensor.copy_(first[i].tensor);
      }
    }
  }
}

std::unique_ptr<StepContext> make_context(const Network& network, const ContextOptions& options) {
  const Plan& plan = options.plan;
  const std::vector<NamedTensor> parameters = trained(network);
  const auto type = options.precision == Precision::float64 ? ElementType::f64 : ElementType::f32;
  const StepOptions step{.chunk = plan.chunk,
                         .update = plan.update,
                         .type = type,
                         .gradient_wire = plan.gradient_wire,
                         .parameter_wire = plan.parameter_wire,
                         .error_feedback = plan.error_feedback,
                         .optimizer = options.optimizer,
                         .schedule = options.schedule,
                         .trace = options.trace};
  const bool host = plan.update == Update::host;
  return std::make_unique<StepContext>(describe(parameters), step,
                                       host ? addresses_of(parameters) : std::vector<void*>());
}

}  // namespace sumpter
