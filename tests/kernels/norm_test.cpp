// sum_of_squares on every instruction set: sums that are exact, and one order of additions.
#include "support.h"

namespace sumpter::kernels {
namespace {

class NormOn : public EveryTarget {};
SUMPTER_ON_EVERY_TARGET(NormOn);

constexpr std::size_t kCounts[] = {0, 1, 7, 8, 9, 63, 4095, 4096, 4097, 4100, 8192, 3 * 4096 + 13};

std::vector<std::uint64_t> bits_of(const std::vector<double>& values) {
  std::vector<std::uint64_t> bits;
  for (const double value : values) bits.push_back(std::isnan(value) ? ~0ULL : std::bit_cast<std::uint64_t>(value));
  return bits;
}

constexpr double kUntouched = -1;

// The sums of an array at an odd address, and one more element, which must stay.
template <typename T>
std::vector<double> sums_of(const std::vector<T>& values, bool by_reference = false) {
  Array array(values, 1);
  std::vector<double> blocks((values.size() + kNormBlock - 1) / kNormBlock + 1, kUntouched);
  const auto* const data = static_cast<const T*>(array.data());
  by_reference ? reference::sum_of_squares(data, values.size(), blocks.data())
               : sum_of_squares(data, values.size(), blocks.data());
  return blocks;
}

TEST_P(NormOn, EqualsTheReference) {
  for (const std::size_t count : kCounts) {
    std::vector<float> values = difficult_values(count, static_cast<unsigned>(count));
    EXPECT_EQ(bits_of(sums_of(values)), bits_of(sums_of(values, true))) << count;
    for (float& value : values) {
      if (!(std::abs(value) < 1e6F)) value = 0.3F;
    }
    EXPECT_EQ(bits_of(sums_of(values)), bits_of(sums_of(values, true))) << count;
    std::vector<double> wide(values.begin(), values.end());
    for (double& value : wide) value *= 1.0 / 3;
    EXPECT_EQ(bits_of(sums_of(wide)), bits_of(sums_of(wide, true))) << count;
  }
}

TEST_P(NormOn, SumsEachBlock) {
  for (const std::size_t count : kCounts) {
    std::vector<float> values(count);
    std::vector<double> expected((count + kNormBlock - 1) / kNormBlock + 1, 0.0);
    expected.back() = kUntouched;
    for (std::size_t i = 0; i < count; ++i) {
      values[i] = static_cast<float>(i % 1021) - 500.0F;
      expected[i / kNormBlock] += static_cast<double>(values[i]) * values[i];
    }
    EXPECT_EQ(sums_of(values), expected) << count;
    EXPECT_EQ(sums_of(std::vector<double>(values.begin(), values.end())), expected) << count;
  }
}

// 2^53 swallows a 1 that is added to it alone: only ones of another lane come together first.
TEST_P(NormOn, AddsByLanes) {
  std::vector<float> values(32);
  values[3] = 0x1p27F;  // its square is 2^54, whose neighbour is 4 away
  values[11] = 1;       // the same lane: swallowed
  values[19] = 1;
  values[4] = values[12] = values[20] = 1;  // the next lane: 3, which rounds up
  EXPECT_EQ(sums_of(values), (std::vector<double>{0x1p54 + 4, kUntouched}));
}

TEST_P(NormOn, KeepsNanInfinityAndLargeSquares) {
  std::vector<float> values(5000, 1.0F);
  values[4999] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(sums_of(values)[0], 4096.0);
  EXPECT_EQ(sums_of(values)[1], std::numeric_limits<double>::infinity());
  values[17] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(sums_of(values)[0]));
  EXPECT_EQ(sums_of(std::vector<float>(2, 0x1p127F))[0], 0x1p255);
  EXPECT_EQ(sums_of(std::vector<float>(2, 0x1p-149F))[0], 0x1p-297);
}

}  // namespace
}  // namespace sumpter::kernels
