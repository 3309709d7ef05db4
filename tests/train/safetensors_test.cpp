// Safetensors files that are not what they should be: each is refused, none is believed.
#include "train/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "base/error.h"
#include "base/file.h"
#include "sumpter/error.h"
#include "tests/support/temporary_directory.h"
#include "tests/train/arrays.h"

namespace sumpter {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;
using tests::Arrays;
using tests::message_of;
using tests::TemporaryDirectory;
namespace fs = std::filesystem;

class Safetensors : public testing::Test {
 protected:
  fs::path file() const { return directory_.path() / "w.safetensors"; }

  // Not synced, and new each time, which is what file systems do not sync of themselves: these are many.
  void write(std::string_view content) const {
    fs::remove(file());
    std::ofstream(file(), std::ios::binary) << content;
  }

  static std::string with_length(std::string_view header, std::uint64_t length) {
    std::string content(reinterpret_cast<const char*>(&length), sizeof(length));
    return content.append(header);
  }

  // The refusal of a file with this header and so many bytes of data; "" when it is read.
  std::string refusal_of(std::string_view header, std::size_t data_bytes) const {
    write(with_length(header, header.size()) + std::string(data_bytes, 'x'));
    return message_of<DataError>([&] { SafetensorsFile::read(file()); });
  }
  // The same of one array of two bytes, named "w".
  std::string refusal_of_array(std::string_view array) const { return refusal_of(header_of(array), 2); }
  static std::string header_of(std::string_view array) { return R"({"w":)" + std::string(array) + "}"; }

  std::string small_file() const {
    Arrays arrays;
    arrays.add<float>("a", ElementType::f32, {2}, {1, 2}).add<std::int8_t>("b.c", ElementType::i8, {1, 3}, {3, 4, 5});
    write_safetensors(arrays.views(), file(), {{"key", "value"}});
    return read_file(file());
  }

  const TemporaryDirectory directory_;
};

TEST_F(Safetensors, EveryLengthButTheWholeIsRefused) {
  const std::string whole = small_file();
  for (std::size_t length = 0; length < whole.size(); ++length) {
    write(whole.substr(0, length));
    EXPECT_THAT(message_of<DataError>([&] { SafetensorsFile::read(file()); }), StartsWith(file().string())) << length;
  }
  write(whole + "x");
  EXPECT_THAT(message_of<DataError>([&] { SafetensorsFile::read(file()); }),
              HasSubstr("the header describes 11 bytes of data, but the file has 12"));
}

// Every value of every byte of the header: refused, or read as one of arrays that are sound together.
TEST_F(Safetensors, NoByteOfTheHeaderIsTrusted) {
  constexpr std::size_t kDataBytes = 11;
  const std::string whole = small_file();
  const std::string header = whole.substr(8, whole.size() - 8 - kDataBytes);
  std::size_t refused = 0, read = 0;
  for (std::size_t place = 0; place < header.size(); ++place) {
    for (int flip = 1; flip < 256; ++flip) {
      std::string damaged = header;
      damaged[place] = static_cast<char>(damaged[place] ^ flip);
      try {
        std::vector<int> uses(kDataBytes, 0);
        for (const SafetensorsEntry& entry : parse_safetensors_header(damaged, kDataBytes, file()).entries) {
          for (std::uint64_t byte = entry.begin; byte < entry.end; ++byte) ++uses.at(byte);
        }
        EXPECT_EQ(uses, std::vector<int>(kDataBytes, 1)) << damaged;
        ++read;
      } catch (const DataError&) {
        ++refused;
      }
    }
  }
  EXPECT_EQ(refused + read, header.size() * 255);
  EXPECT_GT(refused, read);
  EXPECT_GT(read, 0U) << "other names are sound";
}

TEST_F(Safetensors, NoByteOfTheLengthIsTrusted) {
  const std::string whole = small_file();
  for (std::size_t place = 0; place < 8; ++place) {
    for (int flip = 1; flip < 256; ++flip) {
      std::string damaged = whole;
      damaged[place] = static_cast<char>(damaged[place] ^ flip);
      write(damaged);
      EXPECT_THROW(SafetensorsFile::read(file()), DataError) << place << " " << flip;
    }
  }
}

TEST_F(Safetensors, LengthsOfHeadersAreBounded) {
  write(with_length("{}", UINT64_MAX));
  EXPECT_THAT(message_of<DataError>([&] { SafetensorsFile::read(file()); }),
              AllOf(HasSubstr("length is 18446744073709551615"), HasSubstr("2 bytes follow")));
  // Long enough, but with holes instead of bytes.
  write(with_length("{}", 100'000'008));
  fs::resize_file(file(), 200'000'000);
  EXPECT_THAT(message_of<DataError>([&] { SafetensorsFile::read(file()); }), HasSubstr("100000000 are the most"));
}

TEST_F(Safetensors, HeadersThatAreNoneAreRefused) {
  EXPECT_EQ(refusal_of("{}", 0), "");
  EXPECT_THAT(refusal_of("", 0), HasSubstr("is not JSON at its byte"));
  EXPECT_THAT(refusal_of("{", 0), HasSubstr("is not JSON at its byte"));
  EXPECT_THAT(refusal_of("{} {}", 0), HasSubstr("is not JSON at its byte 4"));
  EXPECT_THAT(refusal_of("[]", 0), HasSubstr("should be an object, and is an array"));
  EXPECT_THAT(refusal_of("7", 0), HasSubstr("should be an object, and is 7"));
  EXPECT_THAT(refusal_of("{\"\xff\": 1}", 0), HasSubstr("is not JSON"));
  // As deep as the header is long.
  EXPECT_THAT(refusal_of(std::string(1'000'000, '['), 0), HasSubstr("is an array"));
  std::string deep;
  for (int level = 0; level < 100'000; ++level) deep += R"({"a":)";
  EXPECT_THAT(refusal_of(deep, 0), HasSubstr("\"a\" has the unknown key \"a\""));
  EXPECT_THAT(refusal_of(R"({"w": 5})", 0), HasSubstr("has \"w\" as 5, where an object"));
  EXPECT_THAT(refusal_of(R"({"w": null})", 0), HasSubstr("has \"w\" as null, where an object"));
  // Long names do not make long messages.
  EXPECT_LT(refusal_of(R"({")" + std::string(100'000, 'n') + R"(":5})", 0).size(), 400U);
}

TEST_F(Safetensors, MetadataIsTexts) {
  EXPECT_EQ(refusal_of(R"({"__metadata__": {"a": "b"}})", 0), "");
  EXPECT_THAT(refusal_of(R"({"__metadata__": {"a": 1}})", 0), HasSubstr("__metadata__ has \"a\" as 1, where a text"));
  EXPECT_THAT(refusal_of(R"({"__metadata__": {"a": {}}})", 0), HasSubstr("as an object, where a text"));
  EXPECT_THAT(refusal_of(R"({"__metadata__": {"a": []}})", 0), HasSubstr("as an array, where a text"));
  EXPECT_THAT(refusal_of(R"({"__metadata__": {"a": "b", "a": "c"}})", 0), HasSubstr("__metadata__ has \"a\" twice"));
  EXPECT_THAT(refusal_of(R"({"__metadata__": {}, "__metadata__": {}})", 0), HasSubstr("\"__metadata__\" twice"));
  EXPECT_THAT(refusal_of(R"({"__metadata__": []})", 0), HasSubstr("as an array, where an object"));
}

TEST_F(Safetensors, ArraysSayWhatTheyAre) {
  EXPECT_EQ(refusal_of_array(R"({"dtype":"U8","shape":[2],"data_offsets":[0,2]})"), "");
  EXPECT_EQ(refusal_of_array(R"({"data_offsets":[0,2],"shape":[],"dtype":"F16"})"), "");
  const std::vector<std::pair<const char*, const char*>> wrong = {
      {R"({"shape":[2],"data_offsets":[0,2]})", R"("w" has no "dtype")"},
      {R"({"dtype":"U8","data_offsets":[0,2]})", R"("w" has no "shape")"},
      {R"({"dtype":"U8","shape":[2]})", R"("w" has no "data_offsets")"},
      {R"({"dtype":"U8","dtype":"U8","shape":[2],"data_offsets":[0,2]})", R"("w" has "dtype" twice)"},
      {R"({"dtype":"U8","shape":[2],"shape":[2],"data_offsets":[0,2]})", R"("w" has "shape" twice)"},
      {R"({"dtype":"U8","shape":[2],"data_offsets":[0,2],"more":1})", R"("w" has the unknown key "more")"},
      {R"({"dtype":"F8","shape":[2],"data_offsets":[0,2]})", R"("w" has the dtype "F8"; known are F32, F64, BF16,)"},
      {R"({"dtype":7,"shape":[2],"data_offsets":[0,2]})", R"("w" has 7 in "dtype", where the name of a type)"},
      {R"({"dtype":["U8"],"shape":[2],"data_offsets":[0,2]})", R"("w" has an array in "dtype")"},
      {R"({"dtype":"U8","shape":2,"data_offsets":[0,2]})", R"("w" has 2 in "shape", where whole numbers)"},
      {R"({"dtype":"U8","shape":{},"data_offsets":[0,2]})", R"("w" has an object in "shape")"},
      {R"({"dtype":"U8","shape":[[2]],"data_offsets":[0,2]})", R"("w" has an array in "shape")"},
      {R"({"dtype":"U8","shape":["2"],"data_offsets":[0,2]})", R"("w" has "2" in "shape")"},
      {R"({"dtype":"U8","shape":[true],"data_offsets":[0,2]})", R"("w" has true in "shape")"},
      {R"({"dtype":"U8","shape":[-2],"data_offsets":[0,2]})", R"("w" has -2 in "shape")"},
      {R"({"dtype":"U8","shape":[2.5],"data_offsets":[0,2]})", R"("w" has 2.5 in "shape")"},
      {R"({"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,2]})", R"(9223372036854775808 in "shape")"},
      {R"({"dtype":"U8","shape":[2],"data_offsets":[]})", R"(data_offsets has 0 numbers instead of 2)"},
      {R"({"dtype":"U8","shape":[2],"data_offsets":[0]})", R"(data_offsets has 1 numbers instead of 2)"},
      {R"({"dtype":"U8","shape":[2],"data_offsets":[0,2,2]})", R"(data_offsets has more than 2 numbers)"},
      {R"({"dtype":"U8","shape":[2],"data_offsets":[0,18446744073709551616]})", R"(in "data_offsets", where)"},
      {R"({"dtype":"U8","shape":[2],"data_offsets":[2,0]})", R"(2 to 0, but the file has 2 bytes)"},
      {R"({"dtype":"U8","shape":[2],"data_offsets":[1,3]})", R"(1 to 3, but the file has 2 bytes)"},
      {R"({"dtype":"U8","shape":[3],"data_offsets":[0,2]})", R"(U8 of shape [3], which is 3 bytes, but)"},
      {R"({"dtype":"F32","shape":[2],"data_offsets":[0,2]})", R"(which is 8 bytes, but its data_offsets span 2)"},
      {R"({"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,2]})", R"(which is too many bytes)"},
      // 2 modulo 2^64.
      {R"({"dtype":"U8","shape":[9223372036854775807,2,9223372036854775807],"data_offsets":[0,2]})", "too many bytes"},
  };
  for (const auto& [array, refusal] : wrong)
    EXPECT_THAT(refusal_of_array(array), AllOf(StartsWith(file().string()), HasSubstr(refusal))) << array;
}

TEST_F(Safetensors, EachByteBelongsToOneArray) {
  const auto two = [](int begin, int end, int other_begin, int other_end) {
    return fmt::format(R"({{"a":{{"dtype":"U8","shape":[{}],"data_offsets":[{},{}]}},)"
                       R"("b":{{"dtype":"U8","shape":[{}],"data_offsets":[{},{}]}}}})",
                       end - begin, begin, end, other_end - other_begin, other_begin, other_end);
  };
  EXPECT_EQ(refusal_of(two(0, 2, 2, 4), 4), "");
  EXPECT_EQ(refusal_of(two(2, 4, 0, 2), 4), "");
  EXPECT_THAT(refusal_of(two(0, 4, 2, 4), 4), HasSubstr("\"b\" begins at byte 2 of the data, but what is before it"));
  EXPECT_THAT(refusal_of(two(0, 3, 2, 4), 4), HasSubstr("\"b\" begins at byte 2 of the data, but what is before it"));
  EXPECT_THAT(refusal_of(two(0, 2, 0, 2), 2), HasSubstr("begins at byte 0 of the data"));
  EXPECT_THAT(refusal_of(two(0, 1, 2, 4), 4), HasSubstr("\"b\" begins at byte 2 of the data"));
  EXPECT_THAT(refusal_of(two(1, 2, 2, 4), 4), HasSubstr("\"a\" begins at byte 1 of the data"));
  EXPECT_THAT(refusal_of(two(0, 2, 2, 4), 5), HasSubstr("describes 4 bytes of data, but the file has 5"));
  EXPECT_THAT(refusal_of(two(0, 2, 2, 4), 3), HasSubstr("\"b\" has the data_offsets 2 to 4, but the file has 3"));
  const std::string same = R"("a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  EXPECT_THAT(refusal_of("{" + same + "," + same + "}", 0), HasSubstr("the header has \"a\" twice"));
}

TEST_F(Safetensors, WhatCannotBeReadIsASystemError) {
  EXPECT_THAT(message_of<SystemError>([&] { SafetensorsFile::read(file()); }), HasSubstr("No such file"));
  EXPECT_THAT(message_of<SystemError>([&] { SafetensorsFile::read(directory_.path()); }), HasSubstr("is a directory"));
  EXPECT_THAT(message_of<SystemError>([&] { SafetensorsFile::read("/dev/zero"); }), HasSubstr("is a directory or a"));
}

}  // namespace
}  // namespace sumpter
