#include "step/optimizer.h"

#include "kernels/kernels.h"

namespace sumpter {

Optimizer::Optimizer(std::span<const ParameterInfo> parameters, ElementType type, const OptimizerOptions& options,
                     const Schedule& schedule)
    : parameters_(parameters), type_(type), options_(options), schedule_(schedule) {
  const bool adam = options.kind != OptimizerKind::sgd;
  if (adam || options.momentum != 0) first_ = ParameterArrays(parameters, type);
  if (adam) second_ = ParameterArrays(parameters, type);
}

void Optimizer::update(const Stretch& stretch, const void* gradient, void* value, const UpdateFacts& facts) const {
  if (type_ == ElementType::f64) {
    update_typed<double>(stretch, gradient, value, facts);
  } else {
    update_typed<float>(stretch, gradient, value, facts);
  }
}

template <typename T>
void Optimizer::update_typed(const Stretch& stretch, const void* gradient, void* value,
                             const UpdateFacts& facts) const {
  const bool decays = options_.decay_all || parameters_[stretch.parameter].shape.size() > 1;
  const kernels::OptimizerStep step{.kind = options_.kind,
                                    .learning_rate = options_.learning_rate * schedule_.factor(facts.number),
                                    .momentum = options_.momentum,
                                    .weight_decay = decays ? options_.weight_decay : 0,
                                    .beta1 = options_.beta1,
                                    .beta2 = options_.beta2,
                                    .epsilon = options_.epsilon,
                                    .nesterov = options_.nesterov,
                                    .step = facts.number + 1,
                                    .gradient_scale = facts.gradient_scale};
  kernels::optimize(step, kernels::OptimizerArrays<T>{
                              .gradient = static_cast<const T*>(gradient),
                              .parameter = static_cast<T*>(value),
                              .first = static_cast<T*>(first_.at(stretch.parameter, stretch.begin)),
                              .second = static_cast<T*>(second_.at(stretch.parameter, stretch.begin)),
                              .count = stretch.count,
                          });
}

void Optimizer::add_to(std::vector<StateArray>& state) const {
  first_.add_to(state, "optimizer.first.");
  second_.add_to(state, "optimizer.second.");
}

}  // namespace sumpter
