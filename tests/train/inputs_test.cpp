#include "train/inputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "sumpter/error.h"

namespace sumpter {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

template <typename T>
std::vector<T> values_of(const torch::Tensor& tensor) {
  const torch::Tensor flat = tensor.contiguous();
  return {flat.const_data_ptr<T>(), flat.const_data_ptr<T>() + flat.numel()};
}

// Every byte, as two images of 8x16.
struct AllBytes {
  AllBytes() { std::iota(bytes.begin(), bytes.end(), std::uint8_t{0}); }
  Rows rows() const { return {bytes, labels, {1, 8, 16}, ElementType::u8}; }

  std::vector<std::uint8_t> bytes = std::vector<std::uint8_t>(256);
  std::vector<std::int64_t> labels = {3, 1};
};

std::string refusal_of(const Rows& rows, const InputOptions& options) {
  try {
    to_inputs(rows, options);
  } catch (const RequestError& error) {
    return error.what();
  }
  return "";
}

TEST(Inputs, BytesOfImagesBecomeMinusOneToOne) {
  const AllBytes all;
  const Inputs inputs = to_inputs(all.rows(), {});
  EXPECT_EQ(inputs.values.sizes(), (std::vector<std::int64_t>{2, 1, 8, 16}));
  EXPECT_THAT(values_of<std::int64_t>(inputs.labels), ElementsAre(3, 1));
  const auto values = values_of<float>(inputs.values);
  for (int byte = 0; byte < 256; ++byte)
    EXPECT_EQ(values[static_cast<std::size_t>(byte)], (static_cast<float>(byte) / 255.0F - 0.5F) / 0.5F) << byte;
}

TEST(Inputs, AreDoublesWhereAskedFor) {
  const AllBytes all;
  const Inputs inputs = to_inputs(all.rows(), {.precision = Precision::float64});
  const auto values = values_of<double>(inputs.values);
  for (int byte = 0; byte < 256; ++byte)
    EXPECT_EQ(values[static_cast<std::size_t>(byte)], (byte / 255.0 - 0.5) / 0.5) << byte;
  EXPECT_EQ(to_inputs(all.rows(), {.precision = Precision::bf16}).values.scalar_type(), torch::kFloat32);
}

TEST(Inputs, GreyIsRepeatedAndColourIsNot) {
  const AllBytes all;
  const torch::Tensor plain = to_inputs(all.rows(), {}).values;
  const torch::Tensor repeated = to_inputs(all.rows(), {.channels = 3}).values;
  ASSERT_EQ(repeated.sizes(), (std::vector<std::int64_t>{2, 3, 8, 16}));
  for (int channel = 0; channel < 3; ++channel)
    EXPECT_TRUE(torch::equal(repeated.select(1, channel), plain.select(1, 0))) << channel;
  const std::vector<std::uint8_t> pixel = {0, 51, 255};
  const Rows colour{pixel, std::span(all.labels).first(1), {3, 1, 1}, ElementType::u8};
  EXPECT_THAT(values_of<float>(to_inputs(colour, {.channels = 3}).values),
              ElementsAre(-1, (51.0F / 255.0F - 0.5F) / 0.5F, 1));
}

TEST(Inputs, ResizeIsBilinearBetweenTheMiddlesOfPixels) {
  const std::vector<std::uint8_t> bytes = {0, 255, 255, 0};
  const std::vector<std::int64_t> labels = {0};
  const Rows rows{bytes, labels, {1, 2, 2}, ElementType::u8};
  const torch::Tensor values = to_inputs(rows, {.channels = 3, .image_size = 4}).values;
  ASSERT_EQ(values.sizes(), (std::vector<std::int64_t>{1, 3, 4, 4}));
  // A row goes -1, -1/2, 1/2, 1, and its opposite; between them, 3/4 of the nearer and 1/4 of the farther.
  const float a[] = {-1, -0.5F, 0.5F, 1};
  for (int channel = 0; channel < 3; ++channel)
    for (int y = 0; y < 4; ++y)
      for (int x = 0; x < 4; ++x) EXPECT_EQ(values[0][channel][y][x].item<float>(), -a[x] * a[y]) << y << ' ' << x;
  EXPECT_TRUE(torch::equal(to_inputs(rows, {.image_size = 2}).values, to_inputs(rows, {}).values));
}

TEST(Inputs, TextIsBytesAndWhatFollowsEach) {
  const std::vector<std::uint8_t> bytes = {1, 2, 255, 7, 0, 9};
  const std::vector<std::int64_t> labels = {0, 0};
  const Inputs inputs = to_inputs({bytes, labels, {1, 1, 3}, ElementType::u8}, {.kind = InputKind::bytes});
  EXPECT_EQ(inputs.values.sizes(), (std::vector<std::int64_t>{2, 2}));
  EXPECT_EQ(inputs.labels.sizes(), (std::vector<std::int64_t>{2, 2}));
  EXPECT_THAT(values_of<std::int64_t>(inputs.values), ElementsAre(1, 2, 7, 0));
  EXPECT_THAT(values_of<std::int64_t>(inputs.labels), ElementsAre(2, 255, 0, 9));
}

TEST(Inputs, NumbersStayAsTheyAreWhereverTheyBegin) {
  const std::vector<float> numbers = {-3.5F, 0, 1e30F, 7};
  std::vector<std::uint8_t> bytes(sizeof(float) * 4 + 1);
  std::memcpy(bytes.data() + 1, numbers.data(), sizeof(float) * 4);
  const std::vector<std::int64_t> labels = {4, 5};
  const Rows rows{std::span(bytes).subspan(1), labels, {1, 1, 2}, ElementType::f32};
  for (const InputKind kind : {InputKind::raw, InputKind::image}) {
    const Inputs inputs = to_inputs(rows, {.kind = kind});
    EXPECT_EQ(inputs.values.sizes(), (std::vector<std::int64_t>{2, 1, 1, 2}));
    EXPECT_EQ(values_of<float>(inputs.values), numbers);
    EXPECT_THAT(values_of<std::int64_t>(inputs.labels), ElementsAre(4, 5));
  }
  const torch::Tensor wide = to_inputs(rows, {.kind = InputKind::raw, .precision = Precision::float64}).values;
  EXPECT_THAT(values_of<double>(wide), ElementsAre(-3.5, 0, double{1e30F}, 7));
}

TEST(Inputs, AreCopies) {
  AllBytes all;
  const Inputs image = to_inputs(all.rows(), {}), text = to_inputs(all.rows(), {.kind = InputKind::bytes});
  std::ranges::fill(all.bytes, std::uint8_t{9});
  std::ranges::fill(all.labels, std::int64_t{9});
  EXPECT_EQ(image.values[0][0][0][0].item<float>(), -1);
  EXPECT_EQ(image.labels[1].item<std::int64_t>(), 1);
  EXPECT_EQ(text.values[1][5].item<std::int64_t>(), 133);
  EXPECT_EQ(text.labels[1][5].item<std::int64_t>(), 134);
}

TEST(Inputs, RefuseRowsOfTheWrongKind) {
  const std::vector<std::uint8_t> bytes(8);
  const std::vector<std::int64_t> labels = {0, 0};
  EXPECT_THAT(refusal_of({bytes, labels, {1, 1, 3}, ElementType::u8}, {}),
              HasSubstr("2 rows of 3 u8 elements are 6 bytes, and there are 8"));
  EXPECT_THAT(refusal_of({bytes, labels, {1, 1, 4}, ElementType::i8}, {}), HasSubstr("take u8 or f32"));
  EXPECT_THAT(refusal_of({bytes, labels, {1, 1, 1}, ElementType::f32}, {.kind = InputKind::bytes}),
              HasSubstr("choose a text"));
}

TEST(Inputs, OptionsFollowTheModel) {
  const auto of = [](const char* model, ElementType type) {
    return input_options(parse_model(model, "model"), type, 96, Precision::float64);
  };
  EXPECT_EQ(of("resnet18", ElementType::u8).kind, InputKind::image);
  EXPECT_EQ(of("resnet18", ElementType::u8).channels, 3U);
  EXPECT_EQ(of("lenet", ElementType::u8).channels, 1U);
  EXPECT_EQ(of("mlp", ElementType::f32).kind, InputKind::image);
  EXPECT_EQ(of("gpt", ElementType::u8).kind, InputKind::bytes);
  EXPECT_EQ(of("a.pt", ElementType::f32).kind, InputKind::raw);
  EXPECT_EQ(of("a.pt", ElementType::u8).kind, InputKind::image);
  EXPECT_EQ(of("a.pt", ElementType::u8).channels, 0U);
  EXPECT_EQ(of("lenet", ElementType::u8).image_size, 96);
  EXPECT_EQ(of("lenet", ElementType::u8).precision, Precision::float64);
}

}  // namespace
}  // namespace sumpter
