// What the kernel tests share: every instruction set that this processor has, values of every class, arrays at any
// address, and equality in which any NaN equals any NaN.
#pragma once

#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/kernels.h"

namespace sumpter::kernels {

// Runs each test once for each instruction set that was compiled and that this processor has.
class EveryTarget : public testing::TestWithParam<std::int64_t> {
 protected:
  void SetUp() override {
    hwy::GetChosenTarget().Update(GetParam());
    ASSERT_STREQ(target_name(), hwy::TargetName(GetParam()));
  }
  void TearDown() override { hwy::GetChosenTarget().DeInit(); }
};

inline std::string name_of_target(const testing::TestParamInfo<std::int64_t>& info) {
  return hwy::TargetName(info.param);
}
#define SUMPTER_ON_EVERY_TARGET(suite) \
  INSTANTIATE_TEST_SUITE_P(Target, suite, testing::ValuesIn(hwy::SupportedAndGeneratedTargets()), name_of_target)

// Bytes that start at the given distance from an aligned address, with guard bytes on both sides.
class Array {
 public:
  Array(std::size_t bytes, std::size_t offset) : offset_(offset), storage_(kGuard + offset + bytes + kGuard, kFill) {}
  template <typename T>
  Array(const std::vector<T>& values, std::size_t offset) : Array(values.size() * sizeof(T), offset) {
    if (!values.empty()) std::memcpy(bytes(), values.data(), values.size() * sizeof(T));
  }
  void* data() { return bytes(); }
  float* floats() { return reinterpret_cast<float*>(bytes()); }
  template <typename T>
  std::vector<T> values() const {
    std::vector<T> result(size() / sizeof(T));
    if (!result.empty()) std::memcpy(result.data(), storage_.data() + kGuard + offset_, size());
    return result;
  }
  // True when nothing was written outside.
  bool guards_hold() const {
    for (std::size_t i = 0; i < storage_.size(); ++i) {
      const bool inside = i >= kGuard + offset_ && i < kGuard + offset_ + size();
      if (!inside && storage_[i] != kFill) return false;
    }
    return true;
  }

 private:
  static constexpr std::size_t kGuard = 64;
  static constexpr unsigned char kFill = 0xA5;
  std::size_t size() const { return storage_.size() - 2 * kGuard - offset_; }
  unsigned char* bytes() { return storage_.data() + kGuard + offset_; }
  std::size_t offset_;
  std::vector<unsigned char> storage_;
};

inline bool is_nan(WireFormat format, std::uint32_t bits) {
  switch (format) {
    case WireFormat::bf16:
      return (bits & 0x7FFF) > 0x7F80;
    case WireFormat::f16:
      return (bits & 0x7FFF) > 0x7C00;
    case WireFormat::f32:
    case WireFormat::i8:  // compared as bytes, or decoded
      break;
  }
  return (bits & 0x7FFF'FFFF) > 0x7F80'0000;
}

// The elements of an array in a format, as bits, with one bit pattern for every NaN.
inline std::vector<std::uint32_t> canonical(WireFormat format, const Array& array) {
  std::vector<std::uint32_t> bits;
  if (format == WireFormat::f32) {
    bits = array.values<std::uint32_t>();
  } else {
    for (const std::uint16_t half : array.values<std::uint16_t>()) bits.push_back(half);
  }
  for (std::uint32_t& word : bits) {
    if (is_nan(format, word)) word = 0xFFFF'FFFF;
  }
  return bits;
}

// `count` float32 values: first those where conversions and sums go wrong, then random bits, then moderate numbers.
inline std::vector<float> difficult_values(std::size_t count, unsigned seed) {
  using Limits = std::numeric_limits<float>;
  std::vector<float> values = {0.0F,
                               -0.0F,
                               1.0F,
                               -1.0F,
                               Limits::infinity(),
                               -Limits::infinity(),
                               Limits::quiet_NaN(),
                               Limits::signaling_NaN(),
                               Limits::denorm_min(),
                               -Limits::denorm_min(),
                               Limits::min(),
                               Limits::max(),
                               Limits::lowest(),
                               std::bit_cast<float>(0x7F80'0001U),
                               std::bit_cast<float>(0xFFFF'FFFFU),
                               std::bit_cast<float>(0x007F'FFFFU),
                               65504.0F,
                               65519.996F,
                               65520.0F,
                               65536.0F,
                               -65520.0F,
                               0x1p-14F,
                               0x1p-24F,
                               0x1p-25F,
                               0x1.000002p-25F,
                               0x1.8p-24F,
                               -0x1p-26F,
                               std::bit_cast<float>(0x3F80'8000U),
                               std::bit_cast<float>(0x3F81'8000U),
                               std::bit_cast<float>(0x3F80'1000U),
                               std::bit_cast<float>(0x3F80'3000U),
                               std::bit_cast<float>(0x7F7F'8000U),
                               0.1F};
  std::mt19937 random(seed);
  std::shuffle(values.begin(), values.end(), random);
  std::normal_distribution<float> moderate;
  while (values.size() < count) {
    values.push_back(random() % 2 == 0 ? moderate(random) : std::bit_cast<float>(static_cast<std::uint32_t>(random())));
  }
  values.resize(count);
  return values;
}

}  // namespace sumpter::kernels
