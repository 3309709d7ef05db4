// Every reduction of every type, against plain arithmetic written out here.
#include <array>
#include <functional>

#include "support.h"

namespace sumpter::kernels {
namespace {

constexpr std::size_t kCount = 1100;  // more than two blocks, and a rest

template <typename T>
std::vector<std::vector<T>> random_inputs(std::size_t inputs) {
  std::mt19937_64 random(inputs);
  std::vector<std::vector<T>> result(inputs, std::vector<T>(kCount));
  for (std::vector<T>& input : result) {
    for (T& value : input) {
      if constexpr (std::is_integral_v<T>) {
        value = static_cast<T>(random());
      } else {
        value = static_cast<T>(random() % 4001) / 16 - 125;
      }
    }
  }
  return result;
}

// Runs with the output out of place, then over every input, and expects the same from both.
template <typename T>
std::vector<T> reduced(ElementType type, Reduction reduction, std::vector<std::vector<T>> inputs,
                       const std::vector<double>& scales = {}) {
  std::vector<T> result(inputs.front().size());
  std::vector<const void*> in;
  std::vector<void*> everywhere;
  for (std::vector<T>& input : inputs) {
    in.push_back(input.data());
    everywhere.push_back(input.data());
  }
  void* const output = result.data();
  Reduce job = {.type = type,
                .reduction = reduction,
                .inputs = in,
                .scales = scales,
                .members = inputs.size(),
                .outputs = {&output, 1},
                .count = result.size()};
  reduce(job);
  job.outputs = everywhere;
  reduce(job);
  for (const std::vector<T>& input : inputs) {
    EXPECT_EQ(std::memcmp(input.data(), result.data(), result.size() * sizeof(T)), 0) << name_of(reduction);
  }
  return result;
}

template <typename T>
void expect_folded(ElementType type, Reduction reduction, const std::function<T(T, T)>& combine) {
  for (const std::size_t members : {1, 2, 5, 64}) {
    const auto inputs = random_inputs<T>(members);
    const std::vector<T> found = reduced<T>(type, reduction, inputs);
    for (std::size_t i = 0; i < kCount; ++i) {
      T total = inputs[0][i];
      for (std::size_t k = 1; k < members; ++k) total = combine(total, inputs[k][i]);
      // Infinity times zero is one way to NaN; integers have none.
      const bool both_nan = std::isnan(static_cast<double>(total)) && std::isnan(static_cast<double>(found[i]));
      ASSERT_TRUE(both_nan || found[i] == total)
          << name_of(type) << " " << name_of(reduction) << " " << members << " at " << i;
    }
  }
}

template <typename T>
void expect_integer_reductions(ElementType type) {
  using Wide = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
  expect_folded<T>(type, Reduction::sum, [](T a, T b) { return static_cast<T>(Wide(a) + Wide(b)); });
  expect_folded<T>(type, Reduction::product, [](T a, T b) { return static_cast<T>(Wide(a) * Wide(b)); });
  expect_folded<T>(type, Reduction::minimum, [](T a, T b) { return a < b ? a : b; });
  expect_folded<T>(type, Reduction::maximum, [](T a, T b) { return a > b ? a : b; });
  expect_folded<T>(type, Reduction::bitwise_and, [](T a, T b) { return static_cast<T>(a & b); });
  expect_folded<T>(type, Reduction::bitwise_or, [](T a, T b) { return static_cast<T>(a | b); });
  expect_folded<T>(type, Reduction::bitwise_xor, [](T a, T b) { return static_cast<T>(a ^ b); });
}

TEST(Reduce, Integers) {
  expect_integer_reductions<std::int8_t>(ElementType::i8);
  expect_integer_reductions<std::uint8_t>(ElementType::u8);
  expect_integer_reductions<std::int16_t>(ElementType::i16);
  expect_integer_reductions<std::int32_t>(ElementType::i32);
  expect_integer_reductions<std::int64_t>(ElementType::i64);
}

TEST(Reduce, IntegersWrapAndAverageTowardZero) {
  using Lists = std::vector<std::vector<std::int32_t>>;
  const auto largest = std::numeric_limits<std::int32_t>::max();
  const auto smallest = std::numeric_limits<std::int32_t>::min();
  EXPECT_EQ(reduced<std::int32_t>(ElementType::i32, Reduction::sum, Lists{{largest, 1}, {1, 2}}),
            (std::vector<std::int32_t>{smallest, 3}));
  EXPECT_EQ(reduced<std::int32_t>(ElementType::i32, Reduction::average, Lists{{7, -7}, {0, 0}}),
            (std::vector<std::int32_t>{3, -3}));
  EXPECT_EQ(reduced<std::int8_t>(ElementType::i8, Reduction::average, {{100, -3}, {100, -4}}),
            (std::vector<std::int8_t>{-28, -3}));  // 200 wraps to -56 first
  EXPECT_EQ(reduced<std::uint8_t>(ElementType::u8, Reduction::average, {{100, 3}, {100, 4}}),
            (std::vector<std::uint8_t>{100, 3}));
}

TEST(Reduce, Booleans) {
  using Bytes = std::vector<std::uint8_t>;
  const std::vector<Bytes> inputs = {{0, 0, 2, 128, 255}, {0, 7, 0, 64, 1}};
  const Bytes any = {0, 1, 1, 1, 1};
  const Bytes all = {0, 0, 0, 1, 1};
  for (const Reduction reduction : {Reduction::sum, Reduction::maximum, Reduction::bitwise_or}) {
    EXPECT_EQ(reduced(ElementType::boolean, reduction, inputs), any) << name_of(reduction);
  }
  for (const Reduction reduction : {Reduction::product, Reduction::minimum, Reduction::bitwise_and}) {
    EXPECT_EQ(reduced(ElementType::boolean, reduction, inputs), all) << name_of(reduction);
  }
  EXPECT_EQ(reduced(ElementType::boolean, Reduction::bitwise_xor, inputs), (Bytes{0, 1, 1, 0, 0}));
  EXPECT_EQ(reduced(ElementType::boolean, Reduction::sum, std::vector<Bytes>{{0, 9}}), (Bytes{0, 1}));
}

template <typename T>
void expect_floating_reductions(ElementType type) {
  expect_folded<T>(type, Reduction::sum, std::plus<T>());
  expect_folded<T>(type, Reduction::product, std::multiplies<T>());
  expect_folded<T>(type, Reduction::minimum, [](T a, T b) { return a < b ? a : b; });
  expect_folded<T>(type, Reduction::maximum, [](T a, T b) { return a > b ? a : b; });
  for (const std::size_t members : {1, 3, 64}) {
    const auto inputs = random_inputs<T>(members);
    std::vector<double> scales(members);
    for (std::size_t k = 0; k < members; ++k) scales[k] = 1.0 / static_cast<double>(3 + k);
    const std::vector<T> average = reduced<T>(type, Reduction::average, inputs);
    const std::vector<T> weighted = reduced<T>(type, Reduction::weighted_mean, inputs, scales);
    for (std::size_t i = 0; i < kCount; ++i) {
      T sum = inputs[0][i];
      T weighted_sum = inputs[0][i] * static_cast<T>(scales[0]);
      for (std::size_t k = 1; k < members; ++k) {
        sum += inputs[k][i];
        const T term = inputs[k][i] * static_cast<T>(scales[k]);
        weighted_sum += term;
      }
      ASSERT_EQ(average[i], sum / static_cast<T>(members));
      ASSERT_EQ(weighted[i], weighted_sum);
    }
  }
}

TEST(Reduce, Floats) { expect_floating_reductions<float>(ElementType::f32); }
TEST(Reduce, Doubles) { expect_floating_reductions<double>(ElementType::f64); }

template <typename T>
void expect_nan_everywhere(ElementType type, const std::vector<T>& numbers, T nan, const std::function<bool(T)>& is) {
  for (const Reduction reduction :
       {Reduction::sum, Reduction::average, Reduction::minimum, Reduction::maximum, Reduction::product}) {
    for (std::size_t where = 0; where < 3; ++where) {
      std::vector<std::vector<T>> inputs(3, numbers);
      for (T& value : inputs[where]) value = nan;
      for (const T value : reduced<T>(type, reduction, inputs)) {
        ASSERT_TRUE(is(value)) << name_of(type) << " " << name_of(reduction) << " with NaN in input " << where;
      }
    }
  }
}

TEST(Reduce, NanInAnyInputReachesTheResult) {
  expect_nan_everywhere<float>(ElementType::f32, std::vector<float>(21, 2.0F), std::nanf(""),
                               [](float value) { return std::isnan(value); });
  expect_nan_everywhere<double>(ElementType::f64, std::vector<double>(21, 2.0), std::nan(""),
                                [](double value) { return std::isnan(value); });
  expect_nan_everywhere<std::uint16_t>(ElementType::f16, std::vector<std::uint16_t>(21, 0x4000), 0x7E00,
                                       [](std::uint16_t value) { return is_nan(WireFormat::f16, value); });
  expect_nan_everywhere<std::uint16_t>(ElementType::bf16, std::vector<std::uint16_t>(21, 0x4000), 0x7FC0,
                                       [](std::uint16_t value) { return is_nan(WireFormat::bf16, value); });
}

// Half types are reduced in float32 and rounded once: with roundings in between, 2048 + 1 + 1 would stay 2048 in f16.
TEST(Reduce, HalvesAreRoundedOnce) {
  using Halves = std::vector<std::uint16_t>;
  const Halves f16_2048(40, 0x6800);
  const Halves f16_1(40, 0x3C00);
  EXPECT_EQ(reduced<std::uint16_t>(ElementType::f16, Reduction::sum, {f16_2048, f16_1, f16_1}), Halves(40, 0x6801));
  const Halves f16_60000(40, 0x7B53);
  EXPECT_EQ(reduced<std::uint16_t>(ElementType::f16, Reduction::average, std::vector<Halves>(4, f16_60000)), f16_60000);
  const Halves f16_256(40, 0x5C00);
  const Halves f16_half(40, 0x3800);
  EXPECT_EQ(reduced<std::uint16_t>(ElementType::f16, Reduction::product, {f16_256, f16_256, f16_half}),
            Halves(40, 0x7800));  // 65536 on the way is more than f16 holds, 32768 is not
  const Halves bf16_256(40, 0x4380);
  const Halves bf16_1(40, 0x3F80);
  EXPECT_EQ(reduced<std::uint16_t>(ElementType::bf16, Reduction::sum, {bf16_256, bf16_1, bf16_1}), Halves(40, 0x4381));
  EXPECT_EQ(reduced<std::uint16_t>(ElementType::bf16, Reduction::maximum, {bf16_1, bf16_256}), bf16_256);
  EXPECT_EQ(reduced<std::uint16_t>(ElementType::bf16, Reduction::weighted_mean, {bf16_256, bf16_256}, {0.25, 0.75}),
            bf16_256);
}

TEST(Reduce, NeedsNoAlignment) {
  const std::vector<double> values(37, 1.5);
  Array left(values, 1);
  Array right(values, 3);
  Array result(values.size() * sizeof(double), 5);
  const std::array<const void*, 2> inputs = {left.data(), right.data()};
  void* const output = result.data();
  reduce({.type = ElementType::f64,
          .reduction = Reduction::sum,
          .inputs = inputs,
          .members = 2,
          .outputs = {&output, 1},
          .count = values.size()});
  EXPECT_EQ(result.values<double>(), std::vector<double>(37, 3.0));
  EXPECT_TRUE(result.guards_hold());
}

}  // namespace
}  // namespace sumpter::kernels
