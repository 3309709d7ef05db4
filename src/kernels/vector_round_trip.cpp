// What arrives after a journey in a wire format, vectorised: no encoded array is made.
#include "kernels/float_state.h"
#include "kernels/kernels.h"
#include "kernels/reference.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/vector_round_trip.cpp"
#include <hwy/foreach_target.h>  // compiles this file once for each instruction set

#include "kernels/vector-inl.h"
#include "kernels/vector_i8-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sumpter::kernels::HWY_NAMESPACE {

// The values that travel and what was lost, which is null without feedback.
struct Journey {
  float* values;
  float* residual;
  std::size_t count;
};

template <bool feedback>
HWY_INLINE Floats sent_at(const Journey& journey, std::size_t index) {
  const Floats value = load<WireFormat::f32>(journey.values, index);
  if constexpr (!feedback) return value;
  return hn::Add(value, load<WireFormat::f32>(journey.residual, index));
}

// Writes down what arrived and what was lost, and returns how many values were finite and are not any more.
template <bool feedback>
HWY_INLINE std::size_t arrive(Floats arrived, Floats sent, const Journey& journey, std::size_t index) {
  const auto was_finite = hn::IsFinite(load<WireFormat::f32>(journey.values, index));
  store<WireFormat::f32>(arrived, journey.values, index);
  if constexpr (feedback) {
    const Floats rest = hn::Sub(sent, arrived);
    store<WireFormat::f32>(hn::IfThenElseZero(hn::IsFinite(rest), rest), journey.residual, index);
  }
  return hn::CountTrue(F32(), hn::AndNot(hn::IsFinite(arrived), was_finite));
}

template <WireFormat format>
HWY_INLINE Floats decoded(Floats sent) {
  if constexpr (format == WireFormat::bf16) {
    return hn::BitCast(F32(), hn::And(rounded_to_bf16(sent), hn::Set(U32(), 0xFFFF'0000)));
  } else if constexpr (format == WireFormat::f16) {
    return f32_from_f16(f16_from_f32(sent));
  } else {
    return sent;
  }
}

template <WireFormat format, bool feedback>
std::uint64_t round_trip_all(const Journey& journey) {
  std::uint64_t lost = 0;
  std::size_t i = 0;
  for (; i + kLanes <= journey.count; i += kLanes) {
    const Floats sent = sent_at<feedback>(journey, i);
    lost += arrive<feedback>(decoded<format>(sent), sent, journey, i);
  }
  return lost + reference::round_trip(format, journey.values, journey.residual, i, journey.count);
}

template <bool feedback>
HWY_INLINE std::uint64_t round_trip_block(const Journey& journey, std::size_t begin) {
  const std::size_t end = begin + kI8Block;
  hn::Vec<I32> largest = hn::Zero(I32());
  for (std::size_t i = begin; i < end; i += kLanes) largest = larger(largest, sent_at<feedback>(journey, i));
  const float block_scale = i8_scale_from(largest);
  const Floats scale = hn::Set(F32(), block_scale);
  std::uint64_t lost = 0;
  if (!i8_scale_holds_values(block_scale)) {
    const Floats arrived = hn::Mul(hn::Zero(F32()), scale);  // 0 or NaN, as the scale
    for (std::size_t i = begin; i < end; i += kLanes) {
      lost += arrive<feedback>(arrived, sent_at<feedback>(journey, i), journey, i);
    }
    return lost;
  }
  const Floats rounding = hn::Set(F32(), kI8Rounding);
  for (std::size_t i = begin; i < end; i += kLanes) {
    const Floats sent = sent_at<feedback>(journey, i);
    const Floats arrived = hn::Mul(hn::Sub(i8_rounded(sent, scale), rounding), scale);
    lost += arrive<feedback>(arrived, sent, journey, i);
  }
  return lost;
}

template <bool feedback>
std::uint64_t round_trip_i8(const Journey& journey) {
  std::uint64_t lost = 0;
  std::size_t i = 0;
  for (; i + kI8Block <= journey.count; i += kI8Block) lost += round_trip_block<feedback>(journey, i);
  if (i == journey.count) return lost;
  float* const residual = feedback ? journey.residual + i : nullptr;
  return lost + reference::round_trip(WireFormat::i8, journey.values + i, residual, journey.count - i);
}

template <bool feedback>
std::uint64_t round_trip_as(WireFormat format, const Journey& journey) {
  switch (format) {
    case WireFormat::bf16:
      return round_trip_all<WireFormat::bf16, feedback>(journey);
    case WireFormat::f16:
      return round_trip_all<WireFormat::f16, feedback>(journey);
    case WireFormat::i8:
      return round_trip_i8<feedback>(journey);
    case WireFormat::f32:
      break;
  }
  return round_trip_all<WireFormat::f32, feedback>(journey);
}

std::uint64_t round_trip(WireFormat format, float* values, float* residual, std::size_t count) {
  const Journey journey = {values, residual, count};
  return residual == nullptr ? round_trip_as<false>(format, journey) : round_trip_as<true>(format, journey);
}

}  // namespace sumpter::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sumpter::kernels {

HWY_EXPORT(round_trip);

std::uint64_t round_trip(WireFormat format, float* values, float* residual, std::size_t count) {
  if (format == WireFormat::f32 && residual == nullptr) return 0;  // nothing would change
  const FloatState state;
  return HWY_DYNAMIC_DISPATCH(round_trip)(format, values, residual, count);
}

}  // namespace sumpter::kernels
#endif
