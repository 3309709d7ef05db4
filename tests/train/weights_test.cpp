#include "train/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "sumpter/error.h"
#include "tests/support/temporary_directory.h"
#include "tests/train/arrays.h"

namespace sumpter {
namespace {

using testing::HasSubstr;
using tests::Arrays;
using tests::expect_same;
using tests::message_of;
using tests::TemporaryDirectory;
namespace fs = std::filesystem;

class Weights : public testing::Test {
 protected:
  fs::path file() const { return directory_.path() / "w.safetensors"; }
  static std::string refusal_of(const fs::path& file) {
    return message_of<RequestError>([&] { require_writable(file); });
  }

  const std::vector<float> one_ = {1, 2, 3, 4, 5, 6}, two_ = {-1};
  const std::vector<NamedArray> arrays_ = {{"fc.weight", ElementType::f32, {2, 3}, std::as_bytes(std::span(one_))},
                                           {"fc.bias", ElementType::f32, {1}, std::as_bytes(std::span(two_))}};
  const TemporaryDirectory directory_;
};

// Of files that were written before there were other types.
TEST_F(Weights, DigestStaysWhatItWas) { EXPECT_EQ(digest(arrays_), "9098a2e824492caaff0422c0257492b0"); }

TEST_F(Weights, DigestDependsOnNamesTypesShapesAndEveryBit) {
  const std::string all = digest(arrays_);
  EXPECT_EQ(all.size(), 32U);
  EXPECT_EQ(all.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_EQ(digest(arrays_), all);

  std::vector<NamedArray> other = arrays_;
  other[0].name = "fc.weighs";
  EXPECT_NE(digest(other), all);
  other = arrays_;
  other[0].shape = {3, 2};
  EXPECT_NE(digest(other), all);
  other = arrays_;
  other[0].type = ElementType::i32;
  EXPECT_NE(digest(other), all);
  std::vector<float> changed = one_;
  changed[5] = std::nextafter(changed[5], 7.0F);
  other = arrays_;
  other[0].bytes = std::as_bytes(std::span(changed));
  EXPECT_NE(digest(other), all);
  std::swap(other[0], other[1]);
  EXPECT_NE(digest(other), all);
}

TEST_F(Weights, FileIsLengthThenHeaderThenData) {
  write_safetensors(arrays_, file());
  const std::string content = read_file(file());

  std::uint64_t length = 0;
  std::memcpy(&length, content.data(), sizeof(length));
  ASSERT_EQ(content.size(), sizeof(length) + length + 7 * sizeof(float));
  EXPECT_EQ(length % 8, 0U);
  const auto header = nlohmann::json::parse(content.substr(sizeof(length), length));
  EXPECT_EQ(header, nlohmann::json::parse(R"({
    "fc.weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
    "fc.bias": {"dtype": "F32", "shape": [1], "data_offsets": [24, 28]}})"));
  std::vector<float> data(7);
  std::memcpy(data.data(), content.data() + sizeof(length) + length, 28);
  EXPECT_EQ(data, (std::vector<float>{1, 2, 3, 4, 5, 6, -1}));
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_.path()), {}), 1) << "nothing but the file is left";
}

TEST_F(Weights, OldFileStaysWhenTheNewOneCannotBeWritten) {
  write_safetensors(arrays_, file());
  const std::string before = read_file(file());
  fs::create_directory(file().string() + ".partial");  // in the way of the temporary file
  EXPECT_THROW(write_safetensors({}, file()), SystemError);
  EXPECT_EQ(read_file(file()), before);
}

TEST_F(Weights, EveryTypeAndShapeComesBackBitForBit) {
  Arrays arrays;
  arrays.add<std::uint8_t>("odd bytes first", ElementType::u8, {3}, {0, 127, 255})
      .add<float>("f32", ElementType::f32, {2, 1, 2}, {-0.0F, NAN, INFINITY, 1e-45F})
      .add<double>("f64", ElementType::f64, {2}, {0.1, -NAN})
      .add<std::uint16_t>("bf16", ElementType::bf16, {1, 3}, {0x8000, 0x7fc1, 0x0001})
      .add<std::uint16_t>("f16", ElementType::f16, {3, 1}, {0x8000, 0x7e01, 0x0001})
      .add<std::int8_t>("i8", ElementType::i8, {1}, {-128})
      .add<std::int16_t>("i16", ElementType::i16, {1}, {-32768})
      .add<std::int32_t>("i32", ElementType::i32, {1}, {INT32_MIN})
      .add<std::int64_t>("i64", ElementType::i64, {1}, {INT64_MIN})
      .add<std::uint8_t>("boolean", ElementType::boolean, {5}, {0, 1, 1, 0, 1})
      .add<float>("one number", ElementType::f32, {}, {3})
      .add<double>("none", ElementType::f64, {0}, {})
      .add<double>("none of a huge shape", ElementType::f64, {INT64_MAX, 0, INT64_MAX}, {})
      .add<float>("", ElementType::f32, {1}, {4})
      .add<float>("dots.and..more.", ElementType::f32, {1}, {5})
      .add<float>("\"quoted\" \\ \n \x01 {}", ElementType::f32, {1}, {6})
      .add<float>("größe.重み.🐎", ElementType::f32, {1}, {7})
      .add<float>(std::string("zero\0within", 11), ElementType::f32, {1}, {8});
  const Metadata metadata = {{"format", "pt"}, {"", "empty"}, {"ü\n\"", std::string("\0{}", 3)}};
  write_safetensors(arrays.views(), file(), metadata);

  SafetensorsFile read = SafetensorsFile::read(file());
  expect_same(read.arrays(), arrays.views());
  EXPECT_EQ(read.metadata(), metadata);
  EXPECT_EQ(read.digest(), digest(arrays.views()));
  const SafetensorsFile moved = std::move(read);
  expect_same(moved.arrays(), arrays.views());
  for (const NamedArray& array : moved.arrays()) EXPECT_EQ(moved.find(array.name), &array);
  EXPECT_EQ(moved.find("f3"), nullptr);
}

// torch takes views of the file's bytes, which must begin at multiples of their elements' size.
TEST_F(Weights, WideElementsComeFirstInTheFile) {
  Arrays arrays;
  arrays.add<std::uint8_t>("a", ElementType::u8, {1}, {1})
      .add<double>("b", ElementType::f64, {1}, {2})
      .add<float>("c", ElementType::f32, {1}, {3});
  write_safetensors(arrays.views(), file());
  EXPECT_THAT(read_file(file()), HasSubstr(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[12,13]},)"
                                           R"("b":{"dtype":"F64","shape":[1],"data_offsets":[0,8]},)"
                                           R"("c":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})"));
}

TEST_F(Weights, NoArraysAreAFileToo) {
  write_safetensors({}, file());
  EXPECT_TRUE(SafetensorsFile::read(file()).arrays().empty());
}

TEST_F(Weights, ArraysThatNoFileCanHoldAreRefused) {
  const auto refusal = [&](std::vector<NamedArray> arrays, const Metadata& metadata = {}) {
    return message_of<RequestError>([&] { write_safetensors(arrays, file(), metadata); });
  };
  const std::span<const std::byte> bytes = arrays_[0].bytes;
  EXPECT_THAT(refusal({arrays_[0], arrays_[1], arrays_[0]}), HasSubstr("two arrays have the name \"fc.weight\""));
  EXPECT_THAT(refusal({{"__metadata__", ElementType::f32, {6}, bytes}}), HasSubstr("__metadata__"));
  EXPECT_THAT(refusal({{"\xff", ElementType::f32, {6}, bytes}}), HasSubstr("UTF-8"));
  EXPECT_THAT(refusal({}, {{"key", "\xff"}}), HasSubstr("UTF-8"));
  EXPECT_THAT(refusal({{"w", ElementType::f32, {7}, bytes}}), HasSubstr("which is 28 bytes, but 24 were given"));
  EXPECT_THAT(refusal({{"w", ElementType::f32, {-6}, bytes}}), HasSubstr("too many bytes"));
  EXPECT_THAT(refusal({{"w", ElementType::f32, {INT64_MAX, 4}, bytes}}), HasSubstr("too many bytes"));
  EXPECT_TRUE(fs::is_empty(directory_.path()));
}

TEST_F(Weights, UnwritablePlacesAreRefusedBeforehand) {
  EXPECT_EQ(refusal_of(directory_.path() / "new"), "");
  EXPECT_EQ(refusal_of("new"), "");
  EXPECT_THAT(refusal_of(directory_.path() / "missing" / "w"), HasSubstr("does not exist"));
  EXPECT_THAT(refusal_of(directory_.path()), HasSubstr("is a directory"));
  EXPECT_THAT(refusal_of("/dev/full"), HasSubstr("is a directory or a device"));
  if (geteuid() == 0) return;  // root may write anywhere
  fs::permissions(directory_.path(), fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_THAT(refusal_of(directory_.path() / "w"), HasSubstr("cannot be written"));
  fs::permissions(directory_.path(), fs::perms::owner_all);
}

}  // namespace
}  // namespace sumpter
