// The constants of an optimizer's step: computed in double as torch computes them in Python, rounded once to the type
// of the arrays.
#pragma once

#include <cmath>

#include "kernels/kernels.h"

namespace sumpter::kernels {

template <typename T>
struct OptimizerConstants {
  explicit OptimizerConstants(const OptimizerStep& step)
      : OptimizerConstants(step, static_cast<double>(step.step), 1 - step.beta1) {}

  OptimizerKind kind;
  bool decays;  // adds decay * parameter to the gradient
  bool has_momentum;
  bool nesterov;
  bool lerps_back;  // torch.lerp starts from the end that is nearer to the result: here from the gradient
  T gradient_scale;
  T decay;
  T rate;
  T momentum;
  T kept;            // of the parameter, before anything else
  T first_weight;    // of gradient - first
  T second_kept;     // of second
  T second_weight;   // of the gradient's square
  T corrected_rate;  // -learning_rate / (1 - beta1^step)
  T correction;      // sqrt(1 - beta2^step)
  T epsilon;

 private:
  OptimizerConstants(const OptimizerStep& step, double number, double weight)
      : kind(step.kind),
        decays(step.weight_decay != 0 && step.kind != OptimizerKind::adamw),
        has_momentum(step.momentum != 0),
        nesterov(step.nesterov),
        lerps_back(weight >= 0.5),
        gradient_scale(static_cast<T>(step.gradient_scale)),
        decay(static_cast<T>(step.weight_decay)),
        rate(static_cast<T>(step.learning_rate)),
        momentum(static_cast<T>(step.momentum)),
        kept(static_cast<T>(step.kind == OptimizerKind::adamw ? 1 - step.learning_rate * step.weight_decay : 1)),
        first_weight(static_cast<T>(lerps_back ? weight - 1 : weight)),
        second_kept(static_cast<T>(step.beta2)),
        second_weight(static_cast<T>(1 - step.beta2)),
        corrected_rate(static_cast<T>(-(step.learning_rate / (1 - std::pow(step.beta1, number))))),
        correction(static_cast<T>(std::sqrt(1 - std::pow(step.beta2, number)))),
        epsilon(static_cast<T>(step.epsilon)) {}
};

}  // namespace sumpter::kernels
