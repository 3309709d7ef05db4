// Whole blocks of i8 in vectors. Included once for each instruction set, which is why the guard flips.
#if defined(SUMPTER_KERNELS_VECTOR_I8_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SUMPTER_KERNELS_VECTOR_I8_INL_H_
#undef SUMPTER_KERNELS_VECTOR_I8_INL_H_
#else
#define SUMPTER_KERNELS_VECTOR_I8_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "kernels/format.h"
#include "kernels/i8.h"
#include "kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sumpter::kernels::HWY_NAMESPACE {

using I8 = hn::Rebind<std::int8_t, F32>;
using U8 = hn::Rebind<std::uint8_t, F32>;

static_assert(kI8Block % kLanes == 0);

// The larger of `magnitudes` and those of the values, as bits: a maximum of integers does not lose NaN.
HWY_INLINE hn::Vec<I32> larger(hn::Vec<I32> magnitudes, Floats values) {
  const I32 integers;
  return hn::Max(magnitudes, hn::And(hn::BitCast(integers, values), hn::Set(integers, 0x7FFF'FFFF)));
}
// A block's scale from the largest magnitudes of its values.
HWY_INLINE float i8_scale_from(hn::Vec<I32> magnitudes) {
  return i8_scale(hn::GetLane(hn::MaxOfLanes(I32(), magnitudes)));
}

// kI8Rounding + the integers, for a scale that holds values.
HWY_INLINE Floats i8_rounded(Floats values, Floats scale) {
  const Floats largest = hn::Set(F32(), kI8Largest);
  const Floats quotient = hn::Div(values, scale);
  const Floats clamped = hn::Min(hn::Max(quotient, hn::Neg(largest)), largest);
  return hn::Add(clamped, hn::Set(F32(), kI8Rounding));
}

// kLanes values of a block, from value `index` of it on.
HWY_INLINE Floats load_i8(const std::byte* block, std::size_t index, Floats scale) {
  const auto* const integers = reinterpret_cast<const std::int8_t*>(block + sizeof(float));
  return hn::Mul(hn::ConvertTo(F32(), hn::PromoteTo(I32(), hn::LoadU(I8(), integers + index))), scale);
}

HWY_INLINE Floats i8_scale_of(const std::byte* block) { return hn::Set(F32(), load_at<float>(block, 0)); }

// kI8Block values into a block.
HWY_INLINE void encode_i8_block(const float* values, std::byte* block) {
  hn::Vec<I32> largest = hn::Zero(I32());
  for (std::size_t i = 0; i < kI8Block; i += kLanes) largest = larger(largest, load<WireFormat::f32>(values, i));
  const float scale = i8_scale_from(largest);
  store_at(block, 0, scale);
  auto* const integers = reinterpret_cast<std::uint8_t*>(block + sizeof(float));
  if (!i8_scale_holds_values(scale)) {
    for (std::size_t i = 0; i < kI8Block; i += kLanes) hn::StoreU(hn::Zero(U8()), U8(), integers + i);
    return;
  }
  const Floats divisor = hn::Set(F32(), scale);
  for (std::size_t i = 0; i < kI8Block; i += kLanes) {
    const Floats rounded = i8_rounded(load<WireFormat::f32>(values, i), divisor);
    hn::StoreU(hn::TruncateTo(U8(), hn::BitCast(U32(), rounded)), U8(), integers + i);
  }
}

}  // namespace sumpter::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
