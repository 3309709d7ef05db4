// The format i8: blocks of kI8Block values, each a float32 scale and then one int8 a value. The arithmetic of one value
// and where a block lies, which the vector versions must equal.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "kernels/kernels.h"

namespace sumpter::kernels {

inline constexpr float kI8Largest = 127.0F;
inline constexpr std::size_t kI8BlockBytes = sizeof(float) + kI8Block;

// Added to a float32 of at most 2^22, it rounds that to the nearest even integer, which the lowest bits then hold as a
// two's complement.
inline constexpr float kI8Rounding = 0x1.8p23F;

inline const std::byte* i8_block(const void* array, std::size_t block) {
  return static_cast<const std::byte*>(array) + block * kI8BlockBytes;
}
inline std::byte* i8_block(void* array, std::size_t block) {
  return static_cast<std::byte*>(array) + block * kI8BlockBytes;
}

// The bits of |value|: they compare as the numbers do, infinity above all of them, and NaN above infinity.
constexpr std::int32_t magnitude_bits(float value) { return std::bit_cast<std::int32_t>(value) & 0x7FFF'FFFF; }

// The scale of a block from the largest magnitude_bits of its values.
constexpr float i8_scale(std::int32_t largest) {
  if (largest >= 0x7F80'0000) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>(largest) / kI8Largest;
}

// A scale of 0 or NaN says all there is to say of its block: the integers are 0.
constexpr bool i8_scale_holds_values(float scale) { return scale > 0.0F; }

constexpr std::int8_t i8_from_f32(float value, float scale) {
  if (!i8_scale_holds_values(scale)) return 0;
  const float rounded = std::clamp(value / scale, -kI8Largest, kI8Largest) + kI8Rounding;
  return static_cast<std::int8_t>(std::bit_cast<std::uint32_t>(rounded) & 0xFF);
}

constexpr float f32_from_i8(std::int8_t integer, float scale) { return static_cast<float>(integer) * scale; }

}  // namespace sumpter::kernels
