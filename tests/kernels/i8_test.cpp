// The format i8 on every instruction set: against the reference, and against what its definition says of single blocks.
#include "kernels/i8.h"

#include <hwy/aligned_allocator.h>

#include "support.h"

namespace sumpter::kernels {
namespace {

class I8 : public EveryTarget {};
SUMPTER_ON_EVERY_TARGET(I8);

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr std::size_t kCounts[] = {0,   1,   2,   15,  16,  17,  63,  64,   65,   127, 255,
                                   256, 257, 300, 511, 512, 513, 768, 1000, 1024, 2047};

// What the blocks of these values hold and decode to.
struct Sent {
  std::vector<float> scales;
  std::vector<int> integers;
  std::vector<float> decoded;
};
Sent send(const std::vector<float>& values) {
  Array blocks(wire_bytes(WireFormat::i8, values.size()), 3);
  encode(WireFormat::i8, values.data(), blocks.data(), values.size());
  EXPECT_TRUE(blocks.guards_hold());
  Sent sent;
  sent.decoded.resize(values.size());
  decode(WireFormat::i8, blocks.data(), sent.decoded.data(), values.size());
  const auto bytes = blocks.values<std::int8_t>();
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (i % kI8BlockBytes == 0) std::memcpy(&sent.scales.emplace_back(), &bytes[i], sizeof(float));
    if (i % kI8BlockBytes >= sizeof(float)) sent.integers.push_back(bytes[i]);
  }
  return sent;
}

TEST(WireBytes, CountScalesOfStartedBlocks) {
  EXPECT_EQ(wire_bytes(WireFormat::f32, 5), 20U);
  EXPECT_EQ(wire_bytes(WireFormat::bf16, 5), 10U);
  EXPECT_EQ(wire_bytes(WireFormat::f16, 5), 10U);
  EXPECT_EQ(wire_bytes(WireFormat::i8, 0), 0U);
  EXPECT_EQ(wire_bytes(WireFormat::i8, 1), 5U);
  EXPECT_EQ(wire_bytes(WireFormat::i8, 256), 260U);
  EXPECT_EQ(wire_bytes(WireFormat::i8, 257), 265U);
}

TEST_P(I8, EqualsTheReferenceAtAnyLengthAndAddress) {
  for (const bool finite : {false, true}) {
    for (const std::size_t count : kCounts) {
      for (const std::size_t offset : {0, 1, 4, 30}) {
        std::vector<float> values = difficult_values(count, static_cast<unsigned>(count + offset));
        std::mt19937 random(static_cast<unsigned>(count));
        for (float& value : values) {
          if (finite && !(std::abs(value) < 1e3F)) value = static_cast<float>(random() % 2001) / 8.0F - 125.0F;
        }
        Array in(values, offset);
        const std::size_t bytes = wire_bytes(WireFormat::i8, count);
        Array expected(bytes, offset);
        Array found(bytes, offset / 2);
        reference::encode(WireFormat::i8, in.floats(), expected.data(), count);
        encode(WireFormat::i8, in.floats(), found.data(), count);
        ASSERT_EQ(found.values<std::uint8_t>(), expected.values<std::uint8_t>()) << count;
        ASSERT_TRUE(found.guards_hold()) << count;
        Array expected_values(count * 4, 0);
        Array found_values(count * 4, offset / 2);
        reference::decode(WireFormat::i8, expected.data(), expected_values.floats(), count);
        decode(WireFormat::i8, expected.data(), found_values.floats(), count);
        ASSERT_EQ(canonical(WireFormat::f32, found_values), canonical(WireFormat::f32, expected_values)) << count;
        ASSERT_TRUE(found_values.guards_hold()) << count;
      }
    }
  }
}

// Whatever bytes arrive decode to the product of integer and scale.
TEST_P(I8, DecodesAnyBytesAsTheReference) {
  constexpr std::size_t kCount = 20 * kI8Block + 100;
  std::vector<std::uint8_t> bytes(wire_bytes(WireFormat::i8, kCount));
  std::mt19937 random(1);
  for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random());
  Array expected(kCount * 4, 0);
  Array found(kCount * 4, 0);
  reference::decode(WireFormat::i8, bytes.data(), expected.floats(), kCount);
  decode(WireFormat::i8, bytes.data(), found.floats(), kCount);
  ASSERT_EQ(canonical(WireFormat::f32, found), canonical(WireFormat::f32, expected));
}

// Every scale a power of two: the largest |value| is 127 of it, and quarters show the rounding.
TEST_P(I8, RoundsToTheNearestEvenInteger) {
  for (const float scale : {1.0F, 0x1p-20F, 0x1p100F, 0x1p-126F}) {
    std::vector<float> values;
    std::vector<int> expected;
    for (int quarter = -508; quarter <= 508; ++quarter) {
      if (values.size() % kI8Block == 0) {  // each block's own largest
        values.push_back(-127.0F * scale);
        expected.push_back(-127);
      }
      values.push_back(static_cast<float>(quarter) / 4 * scale);
      expected.push_back(static_cast<int>(std::nearbyint(quarter / 4.0)));
    }
    const Sent sent = send(values);
    ASSERT_EQ(sent.scales, std::vector<float>(sent.scales.size(), scale));
    ASSERT_EQ(sent.integers, expected);
    for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(sent.decoded[i], static_cast<float>(expected[i]) * scale);
  }
}

TEST_P(I8, LosesAtMostHalfAScale) {
  constexpr std::size_t kCount = 7 * kI8Block + 33;
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> values(kCount);
  for (std::size_t i = 0; i < kCount; ++i) values[i] = std::ldexp(normal(random), static_cast<int>(i / kI8Block * 9));
  const Sent sent = send(values);
  for (std::size_t i = 0; i < kCount; ++i) {
    // Beside the rounding to an integer there are those of the division and of the product, in float32.
    const double bound = sent.scales[i / kI8Block] * 0.5 + std::abs(values[i]) * 0x1p-23;
    ASSERT_LE(std::abs(static_cast<double>(values[i]) - sent.decoded[i]), bound) << i;
  }
}

TEST_P(I8, KeepsBlocksApart) {
  std::vector<float> values(3 * kI8Block + 1, 127.0F);
  values[kI8Block] = kInfinity;
  values[2 * kI8Block] = -254.0F;
  values[3 * kI8Block] = 0.0F;
  const Sent sent = send(values);
  EXPECT_EQ(sent.scales[0], 1.0F);
  EXPECT_TRUE(std::isnan(sent.scales[1]));
  EXPECT_EQ(sent.scales[2], 2.0F);
  EXPECT_EQ(sent.scales[3], 0.0F);
  for (std::size_t i = 0; i < kI8Block; ++i) {
    ASSERT_EQ(sent.decoded[i], 127.0F);
    ASSERT_TRUE(std::isnan(sent.decoded[kI8Block + i]));
    ASSERT_EQ(sent.integers[kI8Block + i], 0);
    ASSERT_EQ(sent.decoded[2 * kI8Block + i], i == 0 ? -254.0F : 128.0F);  // 63.5 goes to 64
  }
  EXPECT_EQ(sent.decoded[3 * kI8Block], 0.0F);
}

// One value that is not finite, wherever it lies in a block of any length.
TEST_P(I8, OneValueThatIsNotFiniteSpoilsItsBlock) {
  for (const float bad : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN(),
                          std::numeric_limits<float>::signaling_NaN(), std::bit_cast<float>(0xFFFF'FFFFU)}) {
    for (const std::size_t count : {1, 17, 255, 256}) {
      for (std::size_t at = 0; at < count; at += 5) {
        std::vector<float> values(count, 1.0F);
        values[at] = bad;
        const Sent sent = send(values);
        for (const float value : sent.decoded) ASSERT_TRUE(std::isnan(value)) << count << ", " << at;
      }
    }
  }
}

TEST_P(I8, SmallBlocksUnderflow) {
  constexpr float kUnit = 0x1p-149F;
  // 63 units / 127 round to 0 units; 64 to 1, which is too coarse for the next rounding to matter.
  EXPECT_EQ(send(std::vector<float>(20, 63 * kUnit)).decoded, std::vector<float>(20, 0.0F));
  EXPECT_EQ(send(std::vector<float>(20, 63 * kUnit)).scales, std::vector<float>{0.0F});
  EXPECT_EQ(send(std::vector<float>(20, -64 * kUnit)).decoded, std::vector<float>(20, -64 * kUnit));
  // 190 / 127 round to 1 as well, and 127 units are the most that arrive.
  EXPECT_EQ(send(std::vector<float>(20, -190 * kUnit)).decoded, std::vector<float>(20, -127 * kUnit));
  const Sent zeros = send({0.0F, -0.0F, 0.0F});
  EXPECT_EQ(zeros.scales, std::vector<float>{0.0F});
  for (const float value : zeros.decoded) EXPECT_EQ(std::bit_cast<std::uint32_t>(value), 0U);
}

// Results too large for the caches are stored past them: the same as in portions, which are not.
TEST_P(I8, LargeArraysEqualTheirPortions) {
  constexpr std::size_t kCount = (std::size_t{16} << 20) / 4 + 77;
  constexpr std::size_t kPortion = 40 * kI8Block;
  std::vector<std::uint8_t> blocks(wire_bytes(WireFormat::i8, kCount));
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    blocks[i] = static_cast<std::uint8_t>(i % kI8BlockBytes < 3 ? i % 251 : i % kI8BlockBytes == 3 ? 60 : i % 255);
  }
  std::vector<float> portions(kCount);
  for (std::size_t i = 0; i < kCount; i += kPortion) {
    decode(WireFormat::i8, i8_block(blocks.data(), i / kI8Block), portions.data() + i, std::min(kPortion, kCount - i));
  }
  for (const std::size_t offset : {0, 1}) {  // from the beginning of a line, and not
    const auto found = hwy::AllocateAligned<float>(kCount + offset + 1);
    float* const end = found.get() + offset + kCount;
    *end = -1;
    decode(WireFormat::i8, blocks.data(), found.get() + offset, kCount);
    ASSERT_TRUE(std::equal(portions.begin(), portions.end(), found.get() + offset));
    ASSERT_EQ(*end, -1);
  }
}

}  // namespace
}  // namespace sumpter::kernels
