// What arrives after a journey in a wire format, and the error feedback, on every instruction set.
#include <array>

#include "support.h"

namespace sumpter::kernels {
namespace {

class RoundTrip : public EveryTarget {};
SUMPTER_ON_EVERY_TARGET(RoundTrip);

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr WireFormat kFormats[] = {WireFormat::f32, WireFormat::bf16, WireFormat::f16, WireFormat::i8};
constexpr std::size_t kCounts[] = {0, 1, 7, 16, 17, 33, 64, 255, 256, 257, 511, 600, 1031};

// Hardly any block of difficult values is finite: those of `moderate` all are, and f16 holds most of them.
std::vector<float> test_values(std::size_t count, unsigned seed, bool moderate) {
  std::vector<float> values = difficult_values(count, seed);
  for (std::size_t i = 0; i < count; ++i) {
    if (moderate && !(std::abs(values[i]) < 7e4F)) values[i] = static_cast<float>(i % 101) / 8.0F - 6.0F;
  }
  return values;
}

TEST_P(RoundTrip, EqualsTheReference) {
  for (const WireFormat format : kFormats) {
    for (const std::size_t count : kCounts) {
      for (const bool moderate : {false, true}) {
        const std::size_t offset = count % 5;
        Array values(test_values(count, 1, moderate), offset);
        Array residual(test_values(count, 2, moderate), offset + 1);
        Array expected = values;
        Array expected_residual = residual;
        const std::uint64_t lost = reference::round_trip(format, expected.floats(), expected_residual.floats(), count);
        ASSERT_EQ(round_trip(format, values.floats(), residual.floats(), count), lost) << name_of(format) << count;
        ASSERT_EQ(canonical(WireFormat::f32, values), canonical(WireFormat::f32, expected)) << name_of(format) << count;
        ASSERT_EQ(residual.values<std::uint32_t>(), expected_residual.values<std::uint32_t>()) << name_of(format);
        ASSERT_TRUE(values.guards_hold() && residual.guards_hold()) << name_of(format) << count;
      }
    }
  }
}

TEST_P(RoundTrip, WithoutResidualIsEncodeAndDecode) {
  for (const WireFormat format : kFormats) {
    for (const std::size_t count : kCounts) {
      for (const bool moderate : {false, true}) {
        const std::vector<float> sent = test_values(count, 3, moderate);
        std::vector<std::byte> wire(wire_bytes(format, count));
        Array expected(count * 4, 0);
        encode(format, sent.data(), wire.data(), count);
        decode(format, wire.data(), expected.floats(), count);
        std::uint64_t lost = 0;
        for (std::size_t i = 0; i < count; ++i) {
          if (std::isfinite(sent[i]) && !std::isfinite(expected.floats()[i])) ++lost;
        }
        Array values(sent, 1);
        ASSERT_EQ(round_trip(format, values.floats(), nullptr, count), lost) << name_of(format) << count;
        ASSERT_EQ(canonical(WireFormat::f32, values), canonical(WireFormat::f32, expected)) << name_of(format) << count;
        ASSERT_TRUE(values.guards_hold());
      }
    }
  }
}

// Integers below 2^24 are exact in float32, and so are all sums here: nothing may go missing, in any format.
TEST_P(RoundTrip, ResidualsHoldExactlyWhatWasLost) {
  constexpr std::size_t kCount = 700;
  constexpr int kTimes = 25;
  for (const WireFormat format : kFormats) {
    std::vector<float> residual(kCount, 0.0F);
    std::vector<double> sent(kCount);
    std::vector<double> arrived(kCount);
    bool lost_any = false;
    for (int time = 0; time < kTimes; ++time) {
      std::vector<float> values(kCount);
      for (std::size_t i = 0; i < kCount; ++i) {
        values[i] = static_cast<float>((i * 7919 + static_cast<std::size_t>(time) * 104'729) % 8001) - 4000.0F;
        // A block's largest is far above the residuals and a multiple of 127, so that i8's scale is an integer.
        if (i % kI8Block == 0) values[i] = 127.0F * 64 - residual[i];
        sent[i] += values[i];
      }
      ASSERT_EQ(round_trip(format, values.data(), residual.data(), kCount), 0U);
      for (std::size_t i = 0; i < kCount; ++i) {
        arrived[i] += values[i];
        lost_any = lost_any || residual[i] != 0;
        ASSERT_EQ(arrived[i] + residual[i], sent[i]) << name_of(format) << ", " << i << ", " << time;
      }
    }
    EXPECT_EQ(lost_any, format != WireFormat::f32);
  }
}

TEST_P(RoundTrip, SendsTheResidualOfBefore) {
  constexpr std::size_t kCount = 21;
  std::vector<float> values(kCount, 1.0F);
  std::vector<float> residual(kCount, 0.5F);
  EXPECT_EQ(round_trip(WireFormat::f32, values.data(), residual.data(), kCount), 0U);
  EXPECT_EQ(values, std::vector<float>(kCount, 1.5F));
  EXPECT_EQ(residual, std::vector<float>(kCount, 0.0F));
  // bf16's neighbour of 1 is 1 + 2^-7: it takes two halves of that, and the first goes to the even 1.
  values.assign(kCount, 1.0F + 0x1p-8F);
  EXPECT_EQ(round_trip(WireFormat::bf16, values.data(), residual.data(), kCount), 0U);
  EXPECT_EQ(values, std::vector<float>(kCount, 1.0F));
  EXPECT_EQ(residual, std::vector<float>(kCount, 0x1p-8F));
  values.assign(kCount, 1.0F + 0x1p-8F);
  EXPECT_EQ(round_trip(WireFormat::bf16, values.data(), residual.data(), kCount), 0U);
  EXPECT_EQ(values, std::vector<float>(kCount, 1.0F + 0x1p-7F));
  EXPECT_EQ(residual, std::vector<float>(kCount, 0.0F));
}

TEST_P(RoundTrip, CountsWhatF16CannotHold) {
  std::vector<float> values(40, 65504.0F);
  values[3] = 65520.0F;
  values[17] = -1e9F;
  values[18] = kInfinity;  // was not finite
  values[39] = 65519.0F;   // rounds down
  std::vector<float> residual(40, 0.0F);
  residual[20] = 16.0F;
  residual[21] = -8.0F;
  EXPECT_EQ(round_trip(WireFormat::f16, values.data(), residual.data(), 40), 3U);
  EXPECT_EQ(values[3], kInfinity);
  EXPECT_EQ(values[17], -kInfinity);
  EXPECT_EQ(values[18], kInfinity);
  EXPECT_EQ(values[20], kInfinity);
  EXPECT_EQ(values[39], 65504.0F);
  for (std::size_t i = 0; i < 40; ++i) ASSERT_EQ(residual[i], i == 21 ? -8.0F : i == 39 ? 15.0F : 0.0F) << i;
}

TEST_P(RoundTrip, CountsTheBlocksOfI8ThatBecomeNan) {
  std::vector<float> values(600, 2.0F);
  values[5] = kNan;
  values[599] = -kInfinity;
  std::vector<float> residual(600, 1.0F);
  EXPECT_EQ(round_trip(WireFormat::i8, values.data(), residual.data(), 600), 255U + 87U);
  for (std::size_t i = 0; i < 600; ++i) {
    ASSERT_EQ(std::isnan(values[i]), i < 256 || i >= 512) << i;
    ASSERT_EQ(residual[i], i < 256 || i >= 512 ? 0.0F : 3.0F - values[i]) << i;
  }
}

// 127 times the scale of the largest float32 rounds up to infinity.
TEST_P(RoundTrip, CountsTheLargestOfI8) {
  std::vector<float> values(30, std::numeric_limits<float>::max());
  values[7] = 0;
  EXPECT_EQ(round_trip(WireFormat::i8, values.data(), nullptr, 30), 29U);
  EXPECT_EQ(values[0], kInfinity);
  EXPECT_EQ(values[7], 0.0F);
}

TEST_P(RoundTrip, KeepsNoResidualOfWhatIsNotFinite) {
  for (const WireFormat format : kFormats) {
    for (const float value : {kInfinity, -kInfinity, kNan}) {
      std::vector<float> values(19, value);
      std::vector<float> residual(19, 1.0F);
      EXPECT_EQ(round_trip(format, values.data(), residual.data(), 19), 0U);
      EXPECT_EQ(residual, std::vector<float>(19, 0.0F));
      for (const float arrived : values) EXPECT_FALSE(std::isfinite(arrived));
    }
  }
}

}  // namespace
}  // namespace sumpter::kernels
