// Vectors of float32 and what the vector kernels share: loads from and stores to each wire format. Included once for
// each instruction set, which is why the guard flips.
#if defined(SUMPTER_KERNELS_VECTOR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SUMPTER_KERNELS_VECTOR_INL_H_
#undef SUMPTER_KERNELS_VECTOR_INL_H_
#else
#define SUMPTER_KERNELS_VECTOR_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "kernels/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace sumpter::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using I32 = hn::RebindToSigned<F32>;
using U32 = hn::RebindToUnsigned<F32>;
using U16 = hn::Rebind<std::uint16_t, F32>;
using F16 = hn::Rebind<hwy::float16_t, F32>;
using Floats = hn::Vec<F32>;
using Words = hn::Vec<U32>;
using Halves = hn::Vec<U16>;

inline constexpr std::size_t kLanes = hn::MaxLanes(F32());

// Where the processor converts f16 itself, with IEEE 754's rounding and subnormals.
inline constexpr bool kHasF16Conversion = HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL;

// The bf16 lies in the upper 16 bits; the lower are to be dropped.
HWY_INLINE Words rounded_to_bf16(Floats values) {
  const U32 words;
  const Words bits = hn::BitCast(words, values);
  const Words odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(words, 1));
  const Words rounded = hn::Add(bits, hn::Add(odd, hn::Set(words, 0x7FFF)));
  const Words quiet = hn::Or(bits, hn::Set(words, 0x0040'0000));
  const auto is_nan = hn::RebindMask(words, hn::IsNaN(values));
  return hn::IfThenElse(is_nan, quiet, rounded);
}

HWY_INLINE Halves bf16_from_f32(Floats values) {
  return hn::TruncateTo(U16(), hn::ShiftRight<16>(rounded_to_bf16(values)));
}

HWY_INLINE Floats f32_from_bf16(Halves halves) {
  return hn::BitCast(F32(), hn::ShiftLeft<16>(hn::PromoteTo(U32(), halves)));
}

HWY_INLINE Halves f16_from_f32(Floats values) {
  if constexpr (kHasF16Conversion) {
    return hn::BitCast(U16(), hn::DemoteTo(F16(), values));
  } else {
    const U32 words;
    const I32 integers;
    const Words bits = hn::BitCast(words, values);
    const Words magnitude = hn::And(bits, hn::Set(words, 0x7FFF'FFFF));
    // From 65536 on everything is infinity, and rounding carries what is just below up to it.
    const Words capped = hn::BitCast(words, hn::Min(hn::BitCast(integers, magnitude), hn::Set(integers, 0x4780'0000)));
    const Words odd = hn::And(hn::ShiftRight<13>(capped), hn::Set(words, 1));
    const Words rounded = hn::ShiftRight<13>(hn::Add(capped, hn::Add(odd, hn::Set(words, 0x0FFF))));
    const Words normal = hn::Sub(rounded, hn::Set(words, 112 << 10));
    // Between 0.5 and 1 a float32 counts in units of 2^-24, as a subnormal f16 does: adding 0.5 rounds to them.
    const Floats half = hn::Set(F32(), 0.5F);
    const Floats shifted = hn::Add(hn::BitCast(F32(), magnitude), half);
    const Words subnormal = hn::Sub(hn::BitCast(words, shifted), hn::BitCast(words, half));
    const auto is_small = hn::RebindMask(words, hn::Lt(hn::BitCast(integers, magnitude), hn::Set(integers, 113 << 23)));
    const auto is_nan = hn::RebindMask(words, hn::IsNaN(values));
    const Words number = hn::IfThenElse(is_small, subnormal, normal);
    const Words result = hn::IfThenElse(is_nan, hn::Set(words, 0x7E00), number);
    const Words sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(words, 0x8000));
    return hn::TruncateTo(U16(), hn::Or(sign, result));
  }
}

HWY_INLINE Floats f32_from_f16(Halves halves) {
  if constexpr (kHasF16Conversion) {
    return hn::PromoteTo(F32(), hn::BitCast(F16(), halves));
  } else {
    const U32 words;
    const I32 integers;
    const Words bits = hn::PromoteTo(words, halves);
    const Words magnitude = hn::And(bits, hn::Set(words, 0x7FFF));
    const Words normal = hn::Add(hn::ShiftLeft<13>(magnitude), hn::Set(words, 112 << 23));
    const Words infinite = hn::Or(normal, hn::Set(words, 0x7F80'0000));
    const Floats counted = hn::ConvertTo(F32(), hn::BitCast(integers, magnitude));
    const Words subnormal = hn::BitCast(words, hn::Mul(counted, hn::Set(F32(), 0x1p-24F)));
    const auto compared = hn::BitCast(integers, magnitude);
    const auto is_small = hn::RebindMask(words, hn::Lt(compared, hn::Set(integers, 0x0400)));
    const auto is_infinite = hn::RebindMask(words, hn::Gt(compared, hn::Set(integers, 0x7BFF)));
    const Words number = hn::IfThenElse(is_small, subnormal, normal);
    const Words result = hn::IfThenElse(is_infinite, infinite, number);
    const Words sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(words, 0x8000)));
    return hn::BitCast(F32(), hn::Or(sign, result));
  }
}

// kLanes elements of an array, from element `index` on, at any address.
template <WireFormat format>
HWY_INLINE Floats load(const void* array, std::size_t index) {
  if constexpr (format == WireFormat::f32) {
    return hn::LoadU(F32(), static_cast<const float*>(array) + index);
  } else {
    const Halves halves = hn::LoadU(U16(), static_cast<const std::uint16_t*>(array) + index);
    return format == WireFormat::bf16 ? f32_from_bf16(halves) : f32_from_f16(halves);
  }
}
template <WireFormat format>
HWY_INLINE void store(Floats values, void* array, std::size_t index) {
  if constexpr (format == WireFormat::f32) {
    hn::StoreU(values, F32(), static_cast<float*>(array) + index);
  } else {
    const Halves halves = format == WireFormat::bf16 ? bf16_from_f32(values) : f16_from_f32(values);
    hn::StoreU(halves, U16(), static_cast<std::uint16_t*>(array) + index);
  }
}

// How a store treats the caches. `streamed` goes past them: its addresses are multiples of a vector's bytes, and
// hwy::FlushStream follows before anybody is told.
enum class Store { cached, streamed };

template <Store kind, typename D>
HWY_INLINE void put(hn::Vec<D> vector, D tag, hn::TFromD<D>* address) {
  if constexpr (kind == Store::streamed) {
    hn::Stream(vector, tag, address);
  } else {
    hn::StoreU(vector, tag, address);
  }
}

// Two vectors' halves as one full vector. The scalar fall-back has no vectors of two.
#if HWY_TARGET != HWY_SCALAR
template <WireFormat format>
HWY_INLINE auto pack(Floats first, Floats second) {
  const hn::Twice<U16> full;
  if constexpr (format == WireFormat::bf16) {
    return hn::ConcatOdd(full, hn::BitCast(full, rounded_to_bf16(second)), hn::BitCast(full, rounded_to_bf16(first)));
  } else {
    return hn::Combine(full, f16_from_f32(second), f16_from_f32(first));
  }
}
#endif

// Twice kLanes elements.
template <WireFormat format, Store kind = Store::cached>
HWY_INLINE void store_pair(Floats first, Floats second, void* array, std::size_t index) {
  if constexpr (format == WireFormat::f32) {
    put<kind>(first, F32(), static_cast<float*>(array) + index);
    put<kind>(second, F32(), static_cast<float*>(array) + index + kLanes);
  } else {
#if HWY_TARGET == HWY_SCALAR
    store<format>(first, array, index);
    store<format>(second, array, index + kLanes);
#else
    put<kind>(pack<format>(first, second), hn::Twice<U16>(), static_cast<std::uint16_t*>(array) + index);
#endif
  }
}

}  // namespace sumpter::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
