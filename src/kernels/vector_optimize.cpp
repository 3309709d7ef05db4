// The optimizers' steps, vectorised for float32.
#include "kernels/float_state.h"
#include "kernels/kernels.h"
#include "kernels/optimizer.h"
#include "kernels/reference.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/vector_optimize.cpp"
#include <hwy/foreach_target.h>  // compiles this file once for each instruction set

#include "kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sumpter::kernels::HWY_NAMESPACE {

using Constants = OptimizerConstants<float>;
using Arrays = OptimizerArrays<float>;

HWY_INLINE Floats read(const float* array, std::size_t index) { return load<WireFormat::f32>(array, index); }
HWY_INLINE void write(Floats values, float* array, std::size_t index) { store<WireFormat::f32>(values, array, index); }

// The gradient, scaled, and with the decay of the parameter where there is one.
template <bool decays>
HWY_INLINE Floats gradient_at(const Constants& constants, const Arrays& arrays, Floats parameter, std::size_t index) {
  const Floats gradient = hn::Mul(read(arrays.gradient, index), hn::Set(F32(), constants.gradient_scale));
  if constexpr (!decays) return gradient;
  return hn::Add(gradient, hn::Mul(hn::Set(F32(), constants.decay), parameter));
}

// These loops take the whole vectors of the arrays, and return the first element that is left.
template <bool decays, bool has_momentum, bool nesterov>
std::size_t sgd_loop(const Constants& given, const Arrays& arrays) {
  const Constants constants = given;  // a copy that no store can reach: its fields stay in registers
  const Floats rate = hn::Set(F32(), constants.rate);
  const Floats momentum = hn::Set(F32(), constants.momentum);
  std::size_t i = 0;
  for (; i + kLanes <= arrays.count; i += kLanes) {
    const Floats parameter = read(arrays.parameter, i);
    Floats direction = gradient_at<decays>(constants, arrays, parameter, i);
    if constexpr (has_momentum) {
      const Floats first = hn::Add(hn::Mul(momentum, read(arrays.first, i)), direction);
      write(first, arrays.first, i);
      direction = nesterov ? hn::Add(direction, hn::Mul(momentum, first)) : first;
    }
    write(hn::Sub(parameter, hn::Mul(rate, direction)), arrays.parameter, i);
  }
  return i;
}

template <bool decays, bool lerps_back>
std::size_t adam_loop(const Constants& given, const Arrays& arrays) {
  const Constants constants = given;
  const F32 tag;
  const Floats kept = hn::Set(tag, constants.kept);
  const Floats first_weight = hn::Set(tag, constants.first_weight);
  const Floats second_kept = hn::Set(tag, constants.second_kept);
  const Floats second_weight = hn::Set(tag, constants.second_weight);
  const Floats rate = hn::Set(tag, constants.corrected_rate);
  const Floats correction = hn::Set(tag, constants.correction);
  const Floats epsilon = hn::Set(tag, constants.epsilon);
  std::size_t i = 0;
  for (; i + kLanes <= arrays.count; i += kLanes) {
    const Floats parameter = read(arrays.parameter, i);
    const Floats gradient = gradient_at<decays>(constants, arrays, parameter, i);
    const Floats before = read(arrays.first, i);
    const Floats moved = hn::Mul(first_weight, hn::Sub(gradient, before));
    const Floats first = hn::Add(lerps_back ? gradient : before, moved);
    const Floats square = hn::Mul(hn::Mul(second_weight, gradient), gradient);
    const Floats second = hn::Add(hn::Mul(read(arrays.second, i), second_kept), square);
    write(first, arrays.first, i);
    write(second, arrays.second, i);
    const Floats divisor = hn::Add(hn::Div(hn::Sqrt(second), correction), epsilon);
    const Floats step = hn::Div(hn::Mul(rate, first), divisor);
    write(hn::Add(hn::Mul(parameter, kept), step), arrays.parameter, i);
  }
  return i;
}

template <bool decays>
std::size_t loop(OptimizerKind kind, const Constants& constants, const Arrays& arrays) {
  if (kind != OptimizerKind::sgd) {
    return constants.lerps_back ? adam_loop<decays, true>(constants, arrays)
                                : adam_loop<decays, false>(constants, arrays);
  }
  if (!constants.has_momentum) return sgd_loop<decays, false, false>(constants, arrays);
  return constants.nesterov ? sgd_loop<decays, true, true>(constants, arrays)
                            : sgd_loop<decays, true, false>(constants, arrays);
}

void optimize(const OptimizerStep& step, const Arrays& arrays) {
  const Constants constants(step);
  const std::size_t done =
      constants.decays ? loop<true>(step.kind, constants, arrays) : loop<false>(step.kind, constants, arrays);
  reference::optimize(constants, arrays, done, arrays.count);
}

}  // namespace sumpter::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sumpter::kernels {

HWY_EXPORT(optimize);

void optimize(const OptimizerStep& step, const OptimizerArrays<float>& arrays) {
  const FloatState state;
  HWY_DYNAMIC_DISPATCH(optimize)(step, arrays);
}

void optimize(const OptimizerStep& step, const OptimizerArrays<double>& arrays) {
  const FloatState state;
  reference::optimize(step, arrays);
}

}  // namespace sumpter::kernels
#endif
