// encode and decode on every instruction set, against the reference.
#include <numeric>

#include "support.h"

namespace sumpter::kernels {
namespace {

constexpr WireFormat kFormats[] = {WireFormat::f32, WireFormat::bf16, WireFormat::f16};
constexpr std::size_t kCounts[] = {0, 1, 2, 3, 5, 8, 15, 16, 17, 31, 33, 63, 64, 65, 127, 257, 1000};

class Convert : public EveryTarget {};
SUMPTER_ON_EVERY_TARGET(Convert);

TEST_P(Convert, EncodesDifficultValuesAtAnyLengthAndAddress) {
  for (const WireFormat format : kFormats) {
    for (const std::size_t count : kCounts) {
      for (const std::size_t offset : {0, 1, 4, 30}) {
        Array in(difficult_values(count, static_cast<unsigned>(count + offset)), offset);
        Array expected(count * size_of(format), offset);
        Array found(count * size_of(format), offset / 2);
        reference::encode(format, in.floats(), expected.data(), count);
        encode(format, in.floats(), found.data(), count);
        ASSERT_EQ(canonical(format, found), canonical(format, expected)) << name_of(format) << " " << count;
        ASSERT_TRUE(found.guards_hold()) << name_of(format) << " " << count;
      }
    }
  }
}

TEST_P(Convert, DecodesAtAnyLengthAndAddress) {
  for (const WireFormat format : kFormats) {
    for (const std::size_t count : kCounts) {
      for (const std::size_t offset : {0, 1, 2, 30}) {
        Array in(count * size_of(format), offset);
        reference::encode(format, difficult_values(count, 7).data(), in.data(), count);
        Array expected(count * 4, 0);
        Array found(count * 4, offset / 2);
        reference::decode(format, in.data(), expected.floats(), count);
        decode(format, in.data(), found.floats(), count);
        ASSERT_EQ(canonical(WireFormat::f32, found), canonical(WireFormat::f32, expected)) << name_of(format);
        ASSERT_TRUE(found.guards_hold()) << name_of(format) << " " << count;
      }
    }
  }
}

TEST_P(Convert, EveryHalfThereAndBack) {
  std::vector<std::uint16_t> halves(65536);
  std::iota(halves.begin(), halves.end(), std::uint16_t{0});
  for (const WireFormat format : {WireFormat::bf16, WireFormat::f16}) {
    Array in(halves, 0);
    Array expected(halves.size() * 4, 0);
    Array decoded(halves.size() * 4, 0);
    reference::decode(format, in.data(), expected.floats(), halves.size());
    decode(format, in.data(), decoded.floats(), halves.size());
    ASSERT_EQ(canonical(WireFormat::f32, decoded), canonical(WireFormat::f32, expected)) << name_of(format);
    Array back(halves.size() * 2, 0);
    encode(format, decoded.floats(), back.data(), halves.size());
    ASSERT_EQ(canonical(format, back), canonical(format, in)) << name_of(format);
  }
}

// Every pattern of the upper bits, with the lower bits where the rounding turns.
TEST_P(Convert, EncodesAroundEveryTie) {
  std::vector<float> values;
  for (std::uint32_t high = 0; high < 65536; ++high) {
    for (const std::uint32_t low :
         {0x0000U, 0x0001U, 0x0FFFU, 0x1000U, 0x1001U, 0x3000U, 0x7FFFU, 0x8000U, 0x8001U, 0xFFFFU}) {
      values.push_back(std::bit_cast<float>(high << 16 | low));
    }
  }
  for (const WireFormat format : {WireFormat::bf16, WireFormat::f16}) {
    Array expected(values.size() * 2, 0);
    Array found(values.size() * 2, 0);
    reference::encode(format, values.data(), expected.data(), values.size());
    encode(format, values.data(), found.data(), values.size());
    ASSERT_EQ(canonical(format, found), canonical(format, expected)) << name_of(format);
  }
}

// Results too large for the caches are stored past them, from the first cache line on: the same as in small portions,
// which are not.
TEST_P(Convert, LargeArraysEqualTheirPortions) {
  constexpr std::size_t kBytes = std::size_t{16} << 20;
  constexpr std::size_t kPortion = 10'000;
  constexpr std::size_t kOffset = 6;
  const std::size_t count = kBytes / 2 + 77;
  const std::vector<float> difficult = difficult_values(kPortion, 11);
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = difficult[i % kPortion];
  Array portions(count * 2, 0);
  auto* const halves = static_cast<std::uint16_t*>(portions.data());
  for (std::size_t i = 0; i < count; i += kPortion) {
    encode(WireFormat::bf16, values.data() + i, halves + i, std::min(kPortion, count - i));
  }
  Array encoded(count * 2, kOffset);
  encode(WireFormat::bf16, values.data(), encoded.data(), count);
  ASSERT_TRUE(canonical(WireFormat::bf16, encoded) == canonical(WireFormat::bf16, portions));
  ASSERT_TRUE(encoded.guards_hold());

  values.resize(kBytes / 4 + 77);
  for (std::size_t i = 0; i < values.size(); i += kPortion) {
    decode(WireFormat::f16, halves + i, values.data() + i, std::min(kPortion, values.size() - i));
  }
  Array decoded(values.size() * 4, kOffset);
  decode(WireFormat::f16, halves, decoded.floats(), values.size());
  ASSERT_TRUE(canonical(WireFormat::f32, decoded) == canonical(WireFormat::f32, Array(values, 0)));
  ASSERT_TRUE(decoded.guards_hold());
}

}  // namespace
}  // namespace sumpter::kernels
