// One number at a time between float32 and the 16-bit formats, by integer arithmetic: what the vector versions must
// equal, and what is short enough to be checked by eye. Also loads and stores at any address, in any format.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/i8.h"
#include "sumpter/spec.h"

namespace sumpter::kernels {

// value / 2^shift, rounded to nearest, ties to even; shift is 1 to 31, and the value leaves room for half a unit.
constexpr std::uint32_t shift_right_rounded(std::uint32_t value, int shift) {
  const std::uint32_t below_half = (std::uint32_t{1} << (shift - 1)) - 1;
  const std::uint32_t odd = (value >> shift) & 1;
  return (value + below_half + odd) >> shift;
}

constexpr std::uint16_t bf16_from_f32(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const bool nan = (bits & 0x7FFF'FFFF) > 0x7F80'0000;
  return static_cast<std::uint16_t>(nan ? (bits >> 16) | 0x0040 : shift_right_rounded(bits, 16));
}

constexpr float f32_from_bf16(std::uint16_t half) { return std::bit_cast<float>(std::uint32_t{half} << 16); }

constexpr std::uint16_t f16_from_f32(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000;
  const std::uint32_t magnitude = bits & 0x7FFF'FFFF;
  const int exponent = static_cast<int>(magnitude >> 23);
  std::uint32_t half = 0;
  if (magnitude > 0x7F80'0000) {
    half = 0x7E00;
  } else if (magnitude >= 0x4780'0000) {  // 65536 and more; what rounds up to 65536 overflows into infinity below
    half = 0x7C00;
  } else if (exponent >= 113) {  // normal in f16: 13 bits fewer, and a bias of 15 instead of 127
    half = shift_right_rounded(magnitude, 13) - (112 << 10);
  } else if (exponent >= 102) {  // subnormal in f16: units of 2^-24
    half = shift_right_rounded((magnitude & 0x007F'FFFF) | 0x0080'0000, 126 - exponent);
  }
  return static_cast<std::uint16_t>(sign | half);
}

constexpr float f32_from_f16(std::uint16_t half) {
  const std::uint32_t sign = std::uint32_t{half & 0x8000U} << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1F;
  const std::uint32_t mantissa = half & 0x03FF;
  std::uint32_t magnitude = ((exponent + 112) << 23) | (mantissa << 13);
  if (exponent == 0x1F) {
    magnitude = 0x7F80'0000 | (mantissa << 13);
  } else if (exponent == 0) {
    magnitude = std::bit_cast<std::uint32_t>(static_cast<float>(mantissa) * 0x1p-24F);
  }
  return std::bit_cast<float>(sign | magnitude);
}

// Element `index` of an array that need not be aligned.
template <typename T>
T load_at(const void* array, std::size_t index) {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(array) + index * sizeof(T), sizeof(T));
  return value;
}
template <typename T>
void store_at(void* array, std::size_t index, T value) {
  std::memcpy(static_cast<std::byte*>(array) + index * sizeof(T), &value, sizeof(T));
}

inline float decode_at(WireFormat format, const void* array, std::size_t index) {
  switch (format) {
    case WireFormat::bf16:
      return f32_from_bf16(load_at<std::uint16_t>(array, index));
    case WireFormat::f16:
      return f32_from_f16(load_at<std::uint16_t>(array, index));
    case WireFormat::i8: {
      const std::byte* const block = i8_block(array, index / kI8Block);
      return f32_from_i8(load_at<std::int8_t>(block + sizeof(float), index % kI8Block), load_at<float>(block, 0));
    }
    case WireFormat::f32:
      break;
  }
  return load_at<float>(array, index);
}
// i8 has no single elements to store: encode_i8_block.
inline void encode_at(WireFormat format, void* array, std::size_t index, float value) {
  switch (format) {
    case WireFormat::bf16:
      return store_at(array, index, bf16_from_f32(value));
    case WireFormat::f16:
      return store_at(array, index, f16_from_f32(value));
    case WireFormat::f32:
      return store_at(array, index, value);
    case WireFormat::i8:
      return;
  }
}

}  // namespace sumpter::kernels
