// The sum on every instruction set, against the reference and against values known by hand.
#include <array>

#include "support.h"

namespace sumpter::kernels {
namespace {

class SumOf : public EveryTarget {};
SUMPTER_ON_EVERY_TARGET(SumOf);

// Inputs of the given formats and the outputs of one sum, twice: once for the reference, once for the vector version.
struct Case {
  std::vector<WireFormat> formats;
  std::vector<float> scales = {};  // empty: all 1
  float divisor = 1.0F;
  WireFormat output = WireFormat::f32;
  std::size_t outputs = 1;
  std::size_t count = 0;
  std::size_t offset = 0;
  bool finite = false;
};

std::vector<Array> make_inputs(const Case& test) {
  std::vector<Array> arrays;
  for (std::size_t k = 0; k < test.formats.size(); ++k) {
    // Random bits rarely meet numbers of their size; most positions get small integers and fractions instead.
    std::vector<float> values = difficult_values(test.count, static_cast<unsigned>(17 * k + test.count));
    std::mt19937 random(static_cast<unsigned>(k));
    for (float& value : values) {
      if (test.finite || random() % 4 != 0) value = static_cast<float>(random() % 2001) / 8.0F - 125.0F;
    }
    arrays.emplace_back(wire_bytes(test.formats[k], test.count), test.offset + k % 3);
    reference::encode(test.formats[k], values.data(), arrays.back().data(), test.count);
  }
  return arrays;
}

template <typename Function>
std::vector<Array> run(const Case& test, Function function, std::vector<Array>& arrays) {
  std::vector<SumInput> inputs;
  for (std::size_t k = 0; k < arrays.size(); ++k) {
    inputs.push_back({arrays[k].data(), test.formats[k], test.scales.empty() ? 1.0F : test.scales[k]});
  }
  std::vector<Array> results;
  std::vector<void*> outputs;
  for (std::size_t k = 0; k < test.outputs; ++k) {
    results.emplace_back(wire_bytes(test.output, test.count), test.offset + k);
  }
  outputs.reserve(results.size());
  for (Array& result : results) outputs.push_back(result.data());
  function(Sum{inputs, outputs, test.output, test.divisor, test.count});
  return results;
}

// i8's bytes are the same wherever they are made: its only NaN is a scale that both take from one constant.
std::vector<std::uint32_t> comparable(WireFormat format, const Array& array) {
  if (format != WireFormat::i8) return canonical(format, array);
  const auto bytes = array.values<std::uint8_t>();
  return {bytes.begin(), bytes.end()};
}

void expect_equal_to_reference(const Case& test) {
  std::vector<Array> arrays = make_inputs(test);
  const std::vector<Array> expected = run(
      test, [](const Sum& job) { reference::sum(job); }, arrays);
  const std::vector<Array> found = run(
      test, [](const Sum& job) { sum(job); }, arrays);
  for (std::size_t k = 0; k < test.outputs; ++k) {
    ASSERT_EQ(comparable(test.output, found[k]), comparable(test.output, expected[0]))
        << test.formats.size() << " inputs, count " << test.count << ", output " << k << " " << name_of(test.output);
    ASSERT_TRUE(found[k].guards_hold());
  }
}

TEST_P(SumOf, EqualsTheReferenceForFloats) {
  for (const std::size_t inputs : {1, 2, 3, 4, 5, 8, 9, 64}) {
    for (const std::size_t count : {0, 1, 7, 16, 63, 64, 65, 193, 1031}) {
      for (const float scale : {1.0F, 0.3F}) {
        for (const WireFormat output : {WireFormat::f32, WireFormat::bf16, WireFormat::f16}) {
          expect_equal_to_reference({.formats = std::vector<WireFormat>(inputs, WireFormat::f32),
                                     .scales = std::vector<float>(inputs, scale),
                                     .divisor = inputs == 3 ? 3.0F : 1.0F,
                                     .output = output,
                                     .outputs = inputs == 2   ? 2U
                                                : inputs == 5 ? 5U
                                                              : 1U,
                                     .count = count,
                                     .offset = count % 5});
        }
      }
    }
  }
}

TEST_P(SumOf, EqualsTheReferenceForMixedFormats) {
  const std::vector<WireFormat> mixed = {WireFormat::f16, WireFormat::f32, WireFormat::bf16, WireFormat::bf16,
                                         WireFormat::f16};
  for (const std::size_t count : {1, 16, 63, 200, 1029}) {
    for (const WireFormat output : {WireFormat::f32, WireFormat::bf16, WireFormat::f16}) {
      expect_equal_to_reference({.formats = mixed, .output = output, .count = count});
      expect_equal_to_reference({.formats = mixed,
                                 .scales = {0.25F, 1.0F, 0.1F, 3.0F, 1.0F},
                                 .divisor = 7.0F,
                                 .output = output,
                                 .outputs = 3,
                                 .count = count,
                                 .offset = 1});
      for (const WireFormat format : {WireFormat::bf16, WireFormat::f16}) {
        expect_equal_to_reference({.formats = {format, format, format}, .output = output, .count = count});
      }
    }
  }
}

// A block of random values nearly always has one that is not finite; those of `finite` have none.
TEST_P(SumOf, EqualsTheReferenceForI8) {
  using enum WireFormat;
  for (const bool finite : {false, true}) {
    for (const std::size_t count : {1, 255, 256, 257, 511, 600, 1029}) {
      for (const WireFormat output : {f32, bf16, f16, i8}) {
        for (const std::vector<WireFormat>& formats :
             {std::vector{i8}, std::vector{i8, i8, i8}, std::vector{f32, i8, bf16, f16, i8}, std::vector{bf16, f32}}) {
          Case test = {.formats = formats,
                       .output = output,
                       .outputs = formats.size(),
                       .count = count,
                       .offset = count % 5,
                       .finite = finite};
          expect_equal_to_reference(test);
          test.scales = std::vector<float>(formats.size(), 0.3F);
          test.scales[0] = 1.0F;
          test.divisor = 3.0F;
          expect_equal_to_reference(test);
        }
      }
    }
  }
}

// Integers whose scale is 1 in every array, so that all of it is exact.
TEST_P(SumOf, AddsI8ToItself) {
  constexpr std::size_t kCount = 2 * kI8Block + 9;
  std::vector<float> values(kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    values[i] = i % kI8Block == 0 ? 127.0F : static_cast<float>(i % 63) - 31.0F;
  }
  std::vector<std::uint8_t> blocks(wire_bytes(WireFormat::i8, kCount));
  encode(WireFormat::i8, values.data(), blocks.data(), kCount);
  const std::array<SumInput, 3> inputs = {
      SumInput{blocks.data(), WireFormat::i8}, {values.data()}, {blocks.data(), WireFormat::i8, 2.0F}};
  std::vector<float> floats(kCount);
  void* output = floats.data();
  sum({.inputs = inputs, .outputs = {&output, 1}, .divisor = 2.0F, .count = kCount});
  for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(floats[i], 2 * values[i]) << i;
  output = blocks.data();
  sum({.inputs = inputs, .outputs = {&output, 1}, .output_format = WireFormat::i8, .divisor = 4.0F, .count = kCount});
  decode(WireFormat::i8, blocks.data(), floats.data(), kCount);
  EXPECT_EQ(floats, values);
}

// A result too large for the caches is stored past them: the same as in small portions, which are not.
TEST_P(SumOf, LargeArraysEqualTheirPortions) {
  constexpr std::size_t kCount = (std::size_t{16} << 20) / 4 + 77;
  constexpr std::size_t kPortion = 10'000;
  constexpr std::size_t kOffset = 12;
  std::vector<float> values(kCount);
  for (std::size_t i = 0; i < kCount; ++i) values[i] = static_cast<float>(i % 1021);
  Array found(kCount * 4, kOffset);
  Array portions(kCount * 4, kOffset);
  const auto sum_range = [&](float* output, std::size_t begin, std::size_t count) {
    const std::array<SumInput, 2> inputs = {SumInput{values.data() + begin},
                                            {values.data() + begin, WireFormat::f32, 0.3F}};
    void* const at = output + begin;
    sum({.inputs = inputs, .outputs = {&at, 1}, .count = count});
  };
  sum_range(found.floats(), 0, kCount);
  for (std::size_t i = 0; i < kCount; i += kPortion) {
    sum_range(portions.floats(), i, std::min(kPortion, kCount - i));
  }
  EXPECT_TRUE(found.values<float>() == portions.values<float>());
  EXPECT_TRUE(found.guards_hold());
}

TEST_P(SumOf, OutputsMayBeInputs) {
  for (const WireFormat format : {WireFormat::f32, WireFormat::bf16, WireFormat::f16, WireFormat::i8}) {
    for (const std::size_t count : {1, 64, 1031}) {
      const Case test = {.formats = std::vector<WireFormat>(3, format),
                         .output = format,
                         .count = count,
                         .finite = format == WireFormat::i8};
      std::vector<Array> arrays = make_inputs(test);
      const Array expected = run(
                                 test, [](const Sum& job) { reference::sum(job); }, arrays)
                                 .front();
      const std::array<SumInput, 3> inputs = {
          SumInput{arrays[0].data(), format}, {arrays[1].data(), format}, {arrays[2].data(), format}};
      const std::array<void*, 3> outputs = {arrays[2].data(), arrays[0].data(), arrays[1].data()};
      sum({.inputs = inputs, .outputs = outputs, .output_format = format, .count = count});
      for (const Array& array : arrays) {
        ASSERT_EQ(comparable(format, array), comparable(format, expected));
        ASSERT_TRUE(array.guards_hold());
      }
    }
  }
}

TEST_P(SumOf, OneArrayMayStandForSeveralInputs) {
  std::vector<float> values(100);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const std::array<SumInput, 3> inputs = {SumInput{values.data()}, {values.data()}, {values.data()}};
  void* const output = values.data();
  sum({.inputs = inputs, .outputs = {&output, 1}, .count = values.size()});
  for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], static_cast<float>(3 * i));
}

// In float32 the order shows: (1 + 2^-24) + 2^-24 is 1, 2^-24 + 2^-24 first gives a larger sum. A fused multiply and
// add would show as well: 0.1f * 10f is exactly 1 only after its own rounding.
TEST_P(SumOf, AddsInOrderAndRoundsEveryProduct) {
  constexpr std::size_t kCount = 67;
  const std::vector<float> one(kCount, 1.0F);
  const std::vector<float> small(kCount, 0x1p-24F);
  const std::vector<float> tenth(kCount, 0.1F);
  std::vector<float> result(kCount);
  void* const output = result.data();
  const auto sum_of = [&](std::vector<SumInput> inputs) {
    sum({.inputs = inputs, .outputs = {&output, 1}, .count = kCount});
    return result;
  };
  EXPECT_EQ(sum_of({{one.data()}, {small.data()}, {small.data()}}), one);
  EXPECT_EQ(sum_of({{small.data()}, {small.data()}, {one.data()}}), std::vector<float>(kCount, 1.0F + 0x1p-23F));
  EXPECT_EQ(sum_of({{one.data(), WireFormat::f32, -1.0F}, {tenth.data(), WireFormat::f32, 10.0F}}),
            std::vector<float>(kCount, 0.0F));
}

TEST_P(SumOf, DividesOnceBeforeTheRounding) {
  constexpr std::size_t kCount = 33;
  const std::vector<std::uint16_t> big(kCount, 0x7B53);  // 60000 in f16, to its 32
  const SumInput input = {big.data(), WireFormat::f16};
  const std::vector<SumInput> inputs(4, input);
  std::vector<std::uint16_t> result(kCount);
  void* const output = result.data();
  sum({.inputs = inputs, .outputs = {&output, 1}, .output_format = WireFormat::f16, .divisor = 4.0F, .count = kCount});
  EXPECT_EQ(result, big);
}

TEST_P(SumOf, KeepsNanInfinityAndNegativeZero) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> left = {std::numeric_limits<float>::quiet_NaN(), infinity, infinity, -0.0F, 0x1p-149F};
  const std::vector<float> right = {1.0F, 1.0F, -infinity, -0.0F, 0x1p-149F};
  std::vector<float> result(left.size());
  void* const output = result.data();
  const std::array<SumInput, 2> inputs = {SumInput{left.data()}, {right.data()}};
  sum({.inputs = inputs, .outputs = {&output, 1}, .count = left.size()});
  EXPECT_TRUE(std::isnan(result[0]));
  EXPECT_EQ(result[1], infinity);
  EXPECT_TRUE(std::isnan(result[2]));
  EXPECT_TRUE(result[3] == 0.0F && std::signbit(result[3]));
  EXPECT_EQ(result[4], 0x1p-148F);
}

}  // namespace
}  // namespace sumpter::kernels
