// Threads that flush subnormals or round another way get the same bits, and keep their own rules.
#include "kernels/float_state.h"

#include <array>
#include <cfenv>

#include "support.h"

namespace sumpter::kernels {
namespace {

// Rounds upward and, where the processor can, flushes subnormals, for as long as it lives.
class StrangeRules {
 public:
  StrangeRules() : rounding_(std::fegetround()) {
    std::fesetround(FE_UPWARD);
#if defined(__x86_64__)
    _mm_setcsr(_mm_getcsr() | 0x8040);
#endif
  }
  StrangeRules(const StrangeRules&) = delete;
  StrangeRules& operator=(const StrangeRules&) = delete;
  ~StrangeRules() {
#if defined(__x86_64__)
    _mm_setcsr(_mm_getcsr() & ~0x8040U);
#endif
    std::fesetround(rounding_);
  }
  static bool hold() {
#if defined(__x86_64__)
    if ((_mm_getcsr() & 0x8040) != 0x8040) return false;
#endif
    return std::fegetround() == FE_UPWARD;
  }

 private:
  int rounding_;
};

class Rules : public EveryTarget {};
SUMPTER_ON_EVERY_TARGET(Rules);

// Subnormals of float32, bf16 and f16 beside numbers that must be rounded.
std::vector<float> small_values() {
  std::vector<float> values = difficult_values(200, 5);
  for (std::size_t i = 0; i < values.size(); i += 2) values[i] = static_cast<float>(i + 1) * 0x1p-149F;
  for (std::size_t i = 0; i < values.size(); i += 3) values[i] = static_cast<float>(i + 1) * 0x1.8p-25F;
  return values;
}

TEST_P(Rules, DoNotChangeConversions) {
  const std::vector<float> values = small_values();
  for (const WireFormat format : {WireFormat::bf16, WireFormat::f16, WireFormat::i8}) {
    const std::size_t bytes = wire_bytes(format, values.size());
    Array expected(bytes, 0);
    Array encoded(bytes, 0);
    Array expected_decoded(values.size() * 4, 0);
    Array decoded(values.size() * 4, 0);
    reference::encode(format, values.data(), expected.data(), values.size());
    reference::decode(format, expected.data(), expected_decoded.floats(), values.size());
    {
      const StrangeRules rules;
      encode(format, values.data(), encoded.data(), values.size());
      decode(format, encoded.data(), decoded.floats(), values.size());
      EXPECT_TRUE(StrangeRules::hold());
    }
    if (format == WireFormat::i8) {
      EXPECT_EQ(encoded.values<std::uint8_t>(), expected.values<std::uint8_t>());
    } else {
      EXPECT_EQ(canonical(format, encoded), canonical(format, expected));
    }
    EXPECT_EQ(canonical(WireFormat::f32, decoded), canonical(WireFormat::f32, expected_decoded));
  }
}

TEST_P(Rules, DoNotChangeSumsAndUpdates) {
  constexpr std::size_t kCount = 200;
  Array left(small_values(), 0);
  Array right(difficult_values(kCount, 6), 0);
  Array expected(kCount * 4, 0);
  Array found(kCount * 4, 0);
  const std::array<SumInput, 2> inputs = {SumInput{left.data(), WireFormat::f32, 0.3F}, {right.data()}};
  void* output = expected.data();
  reference::sum({.inputs = inputs, .outputs = {&output, 1}, .divisor = 3.0F, .count = kCount});
  const OptimizerStep step = {.kind = OptimizerKind::adam, .learning_rate = 0.1, .weight_decay = 0.01};
  Array expected_parameter = right;
  Array expected_first = left;
  Array expected_second = left;
  reference::optimize(
      step, {left.floats(), expected_parameter.floats(), expected_first.floats(), expected_second.floats(), kCount});
  Array expected_sums(sizeof(double), 0);
  auto* const expected_squares = static_cast<double*>(expected_sums.data());
  reference::sum_of_squares(left.floats(), kCount, expected_squares);
  Array parameter = right;
  Array first = left;
  Array second = left;
  Array sums(sizeof(double), 0);
  {
    const StrangeRules rules;
    output = found.data();
    sum({.inputs = inputs, .outputs = {&output, 1}, .divisor = 3.0F, .count = kCount});
    optimize(step, {left.floats(), parameter.floats(), first.floats(), second.floats(), kCount});
    sum_of_squares(left.floats(), kCount, static_cast<double*>(sums.data()));
    EXPECT_TRUE(StrangeRules::hold());
  }
  EXPECT_EQ(canonical(WireFormat::f32, found), canonical(WireFormat::f32, expected));
  EXPECT_EQ(canonical(WireFormat::f32, parameter), canonical(WireFormat::f32, expected_parameter));
  EXPECT_EQ(canonical(WireFormat::f32, first), canonical(WireFormat::f32, expected_first));
  EXPECT_EQ(canonical(WireFormat::f32, second), canonical(WireFormat::f32, expected_second));
  EXPECT_EQ(sums.values<std::uint64_t>(), expected_sums.values<std::uint64_t>());
}

TEST_P(Rules, DoNotChangeReductions) {
  constexpr std::size_t kCount = 50;
  const std::vector<double> tiny(kCount, 0x1p-1074);
  const std::vector<double> third(kCount, 1.0 / 3);
  std::vector<double> result(kCount);
  const std::array<const void*, 2> inputs = {tiny.data(), tiny.data()};
  const std::array<const void*, 2> factors = {third.data(), third.data()};
  void* const output = result.data();
  Reduce job = {.type = ElementType::f64, .inputs = inputs, .members = 2, .outputs = {&output, 1}, .count = kCount};
  const StrangeRules rules;
  reduce(job);
  const std::vector<double> sums = result;
  job.reduction = Reduction::product;
  job.inputs = factors;
  reduce(job);
  EXPECT_TRUE(StrangeRules::hold());
  for (std::size_t i = 0; i < kCount; ++i) {
    // Compared as bits: these rules would take a subnormal for zero.
    ASSERT_EQ(std::bit_cast<std::uint64_t>(sums[i]), 2U);
    ASSERT_EQ(std::bit_cast<std::uint64_t>(result[i]), std::bit_cast<std::uint64_t>(0x1.c71c71c71c71cp-4));
  }
}

}  // namespace
}  // namespace sumpter::kernels
