// The optimizer's update, vectorised.
#include "kernels/float_state.h"
#include "kernels/kernels.h"
#include "kernels/reference.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/vector_sgd.cpp"
#include <hwy/foreach_target.h>  // compiles this file once for each instruction set

#include "kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sumpter::kernels::HWY_NAMESPACE {

template <bool decays, bool has_momentum>
void sgd_loop(const Sgd& options, const float* gradient, float* parameter, float* momentum_buffer, std::size_t count) {
  const Floats rate = hn::Set(F32(), options.learning_rate);
  const Floats momentum = hn::Set(F32(), options.momentum);
  const Floats decay = hn::Set(F32(), options.weight_decay);
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const Floats p = load<WireFormat::f32>(parameter, i);
    Floats d = load<WireFormat::f32>(gradient, i);
    if constexpr (decays) d = hn::Add(d, hn::Mul(decay, p));
    if constexpr (has_momentum) {
      d = hn::Add(hn::Mul(momentum, load<WireFormat::f32>(momentum_buffer, i)), d);
      store<WireFormat::f32>(d, momentum_buffer, i);
    }
    store<WireFormat::f32>(hn::Sub(p, hn::Mul(rate, d)), parameter, i);
  }
  reference::sgd(options, gradient, parameter, momentum_buffer, i, count);
}

void sgd(const Sgd& options, const float* gradient, float* parameter, float* momentum_buffer, std::size_t count) {
  const bool decays = options.weight_decay != 0.0F;
  const bool has_momentum = options.momentum != 0.0F;
  const auto loop = decays ? (has_momentum ? sgd_loop<true, true> : sgd_loop<true, false>)
                           : (has_momentum ? sgd_loop<false, true> : sgd_loop<false, false>);
  loop(options, gradient, parameter, momentum_buffer, count);
}

}  // namespace sumpter::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sumpter::kernels {

HWY_EXPORT(sgd);

void sgd(const Sgd& options, const float* gradient, float* parameter, float* momentum_buffer, std::size_t count) {
  const FloatState state;
  HWY_DYNAMIC_DISPATCH(sgd)(options, gradient, parameter, momentum_buffer, count);
}

}  // namespace sumpter::kernels
#endif
