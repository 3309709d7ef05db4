// The optimizer and its state: what turns the mean of the gradients into new values of the parameters. Every replica
// has one (update=device), or the context has one for all (update=host).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "step/arrays.h"
#include "sumpter/spec.h"

namespace sumpter {

// What is the same for all parameters of a step.
struct UpdateFacts {
  std::uint64_t number = 0;   // of the step, from 0
  double gradient_scale = 1;  // multiplies the gradient first: clipping
};

class Optimizer {
 public:
  // f32 or f64; all state is zeros. `parameters` outlives this.
  Optimizer(std::span<const ParameterInfo> parameters, ElementType type, const OptimizerOptions& options,
            const Schedule& schedule);

  // `gradient` and `value` are the addresses of the stretch's first element. Any thread, several at a time for
  // stretches that do not overlap.
  void update(const Stretch& stretch, const void* gradient, void* value, const UpdateFacts& facts) const;

  // "optimizer.first.*": sgd's momentum buffer, where there is momentum; adam's exp_avg. "optimizer.second.*": adam's
  // exp_avg_sq.
  void add_to(std::vector<StateArray>& state) const;

 private:
  template <typename T>
  void update_typed(const Stretch& stretch, const void* gradient, void* value, const UpdateFacts& facts) const;

  std::span<const ParameterInfo> parameters_;
  ElementType type_;
  OptimizerOptions options_;
  Schedule schedule_;
  ParameterArrays first_, second_;
};

}  // namespace sumpter
