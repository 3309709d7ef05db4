// The one-number conversions, against definitions that share nothing with them.
#include "kernels/format.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace sumpter::kernels {
namespace {

// The value of a 16-bit number by the definition of its fields.
double value_of(std::uint16_t half, int exponent_bits) {
  const int mantissa_bits = 15 - exponent_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int mantissa = half & ((1 << mantissa_bits) - 1);
  const int exponent = (half >> mantissa_bits) & ((1 << exponent_bits) - 1);
  double magnitude = 0;
  if (exponent == (1 << exponent_bits) - 1) {
    magnitude = mantissa == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    magnitude = std::ldexp(mantissa, 1 - bias - mantissa_bits);
  } else {
    magnitude = std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
  }
  return std::copysign(magnitude, half >= 0x8000 ? -1.0 : 1.0);
}

TEST(Format, DecodesEveryHalf) {
  for (int i = 0; i < 65536; ++i) {
    const auto half = static_cast<std::uint16_t>(i);
    const double bf16 = value_of(half, 8);
    const double f16 = value_of(half, 5);
    if (std::isnan(bf16)) {
      ASSERT_TRUE(std::isnan(f32_from_bf16(half))) << i;
    } else {
      ASSERT_EQ(f32_from_bf16(half), bf16) << i;
      ASSERT_EQ(bf16_from_f32(f32_from_bf16(half)), half) << i;
    }
    if (std::isnan(f16)) {
      ASSERT_TRUE(std::isnan(f32_from_f16(half))) << i;
    } else {
      ASSERT_EQ(f32_from_f16(half), f16) << i;
      ASSERT_EQ(f16_from_f32(f32_from_f16(half)), half) << i;
    }
  }
}

// Between two neighbours, what lies below the middle goes down, above it up, and the middle to the even one. The value
// after the largest finite one is where the next would be if the format went on, and stands for infinity.
template <typename Encode>
void expect_nearest_even(Encode encode, int exponent_bits, std::uint16_t infinity) {
  for (std::uint16_t low = 0; low < infinity; ++low) {
    const auto high = static_cast<std::uint16_t>(low + 1);
    const double step = low == infinity - 1 ? value_of(low, exponent_bits) - value_of(low - 1, exponent_bits)
                                            : value_of(high, exponent_bits) - value_of(low, exponent_bits);
    const auto middle = static_cast<float>(value_of(low, exponent_bits) + step / 2);
    const std::uint16_t even = low % 2 == 0 ? low : high;
    for (const std::uint16_t sign : {0x0000, 0x8000}) {
      const float signed_middle = sign == 0 ? middle : -middle;
      ASSERT_EQ(encode(signed_middle), sign | even) << low;
      ASSERT_EQ(encode(std::nextafter(signed_middle, 0.0F)), sign | low) << low;
      ASSERT_EQ(encode(std::nextafter(signed_middle, signed_middle * 4)), sign | high) << low;
    }
  }
}

TEST(Format, RoundsToNearestEven) {
  expect_nearest_even(f16_from_f32, 5, 0x7C00);
  expect_nearest_even(bf16_from_f32, 8, 0x7F80);
}

TEST(Format, KeepsNanInfinityAndSigns) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(bf16_from_f32(infinity), 0x7F80);
  EXPECT_EQ(f16_from_f32(-infinity), 0xFC00);
  EXPECT_EQ(f16_from_f32(-0.0F), 0x8000);
  EXPECT_EQ(f16_from_f32(std::numeric_limits<float>::max()), 0x7C00);
  EXPECT_EQ(bf16_from_f32(std::numeric_limits<float>::max()), 0x7F80);
  // A NaN whose payload lies in the bits that are cut off must not turn into infinity, and none may carry into zero.
  for (const std::uint32_t bits : {0x7F80'0001U, 0xFF80'0001U, 0x7FFF'FFFFU, 0xFFFF'FFFFU, 0x7FA0'0000U}) {
    const auto nan = std::bit_cast<float>(bits);
    EXPECT_TRUE(std::isnan(f32_from_bf16(bf16_from_f32(nan)))) << bits;
    EXPECT_TRUE(std::isnan(f32_from_f16(f16_from_f32(nan)))) << bits;
  }
}

}  // namespace
}  // namespace sumpter::kernels
