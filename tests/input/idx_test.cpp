#include "input/idx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "idx_files.h"
#include "sumpter/error.h"
#include "tests/support/error_of.h"

namespace sumpter {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using tests::error_of;

std::string parse_error(const Bytes& content, int dimensions = 3) {
  return error_of<DataError>([&] { parse_idx(content, "images.idx", dimensions); });
}

TEST(ParseIdx, ReadsPlainAndGzipAlike) {
  const Bytes plain = idx_images(5, 3, 4);
  for (const Bytes& content : {plain, gzipped(plain)}) {
    const IdxArray array = parse_idx(content, "images.idx", 3);
    EXPECT_EQ(array.items, 5U);
    EXPECT_EQ(array.item_bytes, 12U);
    EXPECT_THAT(array.sides, testing::ElementsAre(3, 4));
    EXPECT_EQ(array.values, Bytes(plain.begin() + 16, plain.end()));
  }
}

TEST(ParseIdx, ReadsMoreThanOneGrowthOfItsMemory) {
  const Bytes plain = idx_images(300, 28, 28);
  EXPECT_EQ(parse_idx(plain, "images.idx", 3).values, Bytes(plain.begin() + 16, plain.end()));
  EXPECT_EQ(parse_idx(gzipped(plain), "images.idx", 3).values, Bytes(plain.begin() + 16, plain.end()));
}

TEST(ParseIdx, JoinsSeveralGzipMembers) {
  const Bytes plain = idx_images(5, 3, 4);
  Bytes content;
  for (const Bytes& part : {Bytes(plain.begin(), plain.begin() + 20), Bytes(plain.begin() + 20, plain.end())}) {
    const Bytes member = gzipped(part);
    content.insert(content.end(), member.begin(), member.end());
  }
  EXPECT_EQ(parse_idx(content, "images.idx", 3).values, Bytes(plain.begin() + 16, plain.end()));
}

TEST(ParseIdx, NamesAHeaderThatIsCutOff) {
  const Bytes whole = idx_images(2, 3, 4);
  for (std::size_t length = 0; length < 16; ++length) {
    EXPECT_EQ(parse_error(Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length))),
              "images.idx: expected an IDX header of 16 bytes, but the file ends after " + std::to_string(length));
  }
}

TEST(ParseIdx, NamesTheItemWhereValuesEnd) {
  Bytes content = idx_images(5, 3, 4);
  content.resize(16 + 2 * 12 + 7);
  for (const Bytes& damaged : {content, gzipped(content)}) {
    EXPECT_EQ(parse_error(damaged),
              "images.idx: the header promises 5 items of 12 bytes, 60 in all, but 31 bytes follow: item 2 is cut off");
  }
}

TEST(ParseIdx, ReservesNothingForAPromiseThatIsNotKept) {
  Bytes content;
  for (const std::uint32_t number : {0x803U, 0xFFFFFFFFU, 0xFFFFU, 0xFFFFU}) append_number(content, number);
  content.push_back(1);
  for (const Bytes& damaged : {content, gzipped(content)}) {  // 18 exabytes: reserving them would throw bad_alloc
    EXPECT_THAT(parse_error(damaged), AllOf(HasSubstr("promises 4294967295 items"), HasSubstr("but 1 bytes follow")));
  }
}

TEST(ParseIdx, NamesSizesThatOverflow) {
  Bytes content;
  for (const std::uint32_t number : {0x803U, 0xFFFFFFFFU, 0xFFFFFFFFU, 0xFFFFFFFFU}) append_number(content, number);
  EXPECT_THAT(parse_error(content), AllOf(HasSubstr("images.idx"), HasSubstr("more bytes than 64 bits can count")));
}

TEST(ParseIdx, NamesBytesBeyondTheEnd) {
  Bytes content = idx_images(5, 3, 4);
  content.push_back(0);
  for (const Bytes& damaged : {content, gzipped(content)}) {
    EXPECT_EQ(parse_error(damaged),
              "images.idx: expected the end of the file after 5 items of 12 bytes, found more bytes");
  }
}

TEST(ParseIdx, NamesBytesBehindTheGzipData) {
  Bytes content = gzipped(idx_images(5, 3, 4));
  content.push_back('x');
  EXPECT_THAT(parse_error(content), AllOf(HasSubstr("images.idx"), HasSubstr("after 76 decompressed bytes")));
}

TEST(ParseIdx, NamesAWrongMagicNumber) {
  EXPECT_EQ(parse_error(idx_labels(5)),
            "images.idx: expected the magic number 0x00000803 of IDX images, found 0x00000801");
  EXPECT_EQ(parse_error(idx_images(5, 3, 4), 1),
            "images.idx: expected the magic number 0x00000801 of IDX labels, found 0x00000803");
  Bytes floats = idx_images(5, 3, 4);
  floats[2] = 0x0D;
  EXPECT_THAT(parse_error(floats), HasSubstr("found 0x00000d03"));
}

TEST(ParseIdx, NamesNoItemsAndNoPixels) {
  EXPECT_EQ(parse_error(idx_images(0, 3, 4)), "images.idx: expected items, the header says 0");
  EXPECT_THAT(parse_error(idx_images(5, 0, 4)), HasSubstr("the header says a side of 0"));
  EXPECT_THAT(parse_error(idx_images(5, 3, 0)), HasSubstr("the header says a side of 0"));
}

TEST(ParseIdx, NamesGzipDataThatEndTooEarly) {
  const Bytes whole = gzipped(idx_images(200, 28, 28));
  for (const std::size_t length : {std::size_t{2}, whole.size() / 2, whole.size() - 1}) {
    const Bytes content(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length));
    EXPECT_THAT(parse_error(content), AllOf(HasSubstr("images.idx"), HasSubstr("end too early")));
  }
  const Bytes half(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(whole.size() / 2));
  EXPECT_THAT(parse_error(half), testing::MatchesRegex(".*; item [0-9]+ is cut off"));
}

TEST(ParseIdx, NamesGzipDataThatAreDamaged) {
  const Bytes whole = gzipped(idx_images(200, 28, 28));
  Bytes wrong_sum = whole;
  wrong_sum[wrong_sum.size() - 8] ^= 1;  // the checksum of the decompressed bytes
  EXPECT_THAT(parse_error(wrong_sum), AllOf(HasSubstr("damaged"), HasSubstr("incorrect data check")));
  Bytes wrong_block = whole;
  wrong_block[10] |= 0x06;  // a kind of block that does not exist
  EXPECT_THAT(parse_error(wrong_block),
              AllOf(HasSubstr("damaged after 0 decompressed bytes"), HasSubstr("block type")));
}

class OpenIdx : public testing::Test {
 protected:
  std::string open_error(const Bytes& images, const Bytes& labels, int classes = 0) {
    return error_of<DataError>([&] {
      open_idx({.images = directory_.write("images", images),
                .labels = directory_.write("labels", labels),
                .classes = classes});
    });
  }
  std::string file(const std::string& name) const { return (directory_.path() / name).string(); }
  TemporaryDirectory directory_;
};

TEST_F(OpenIdx, GivesEveryImageAndLabel) {
  const auto set = open_idx({.images = directory_.write("images", idx_images(12, 3, 4)),
                             .labels = directory_.write("labels", gzipped(idx_labels(12)))});
  EXPECT_EQ(set->size(), 12U);
  EXPECT_EQ(set->shape(), (ImageShape{.channels = 1, .height = 3, .width = 4}));
  EXPECT_EQ(set->classes(), 10);
  for (std::size_t item = 0; item < 12; ++item) {
    Bytes image(12);
    EXPECT_EQ(set->get({.index = item}, image), static_cast<std::int64_t>(item % 10));
    for (std::size_t pixel = 0; pixel < 12; ++pixel) EXPECT_EQ(image[pixel], 10 * item + pixel);
  }
}

TEST_F(OpenIdx, NamesDifferentCounts) {
  EXPECT_THAT(open_error(idx_images(5, 3, 4), idx_labels(6)),
              AllOf(HasSubstr(file("images") + " has 5 images"), HasSubstr(file("labels") + " has 6 labels")));
}

TEST_F(OpenIdx, NamesTheItemWhoseLabelIsOutOfRange) {
  const Bytes labels = idx_labels(Bytes{0, 9, 10, 3});
  const std::string advice = "; raise the number of classes or look at the file";
  EXPECT_EQ(open_error(idx_images(4, 1, 1), labels, 10),
            file("labels") + ": item 2 has the label 10, but labels are below the number of classes, 10" + advice);
  EXPECT_EQ(open_error(idx_images(4, 1, 1), labels, 4),
            file("labels") + ": item 1 has the label 9, but labels are below the number of classes, 4" + advice);
  for (const int classes : {11, 300})
    EXPECT_EQ(open_idx({.images = file("images"), .labels = file("labels"), .classes = classes})->classes(), classes);
}

TEST_F(OpenIdx, HasAsManyClassesAsItsLabelsTell) {
  const std::pair<Bytes, int> cases[] = {{{0, 0, 0}, 1}, {{0, 4, 3}, 5}, {{19, 0, 7}, 20}, {{2, 255, 1}, 256}};
  for (const auto& [labels, classes] : cases) {
    const auto set = open_idx({.images = directory_.write("images", idx_images(3, 1, 1)),
                               .labels = directory_.write("labels", idx_labels(labels))});
    EXPECT_EQ(set->classes(), classes);
    for (std::size_t item = 0; item < 3; ++item) {
      Bytes image(1);
      EXPECT_EQ(set->get({.index = item}, image), labels[item]);
    }
  }
}

TEST_F(OpenIdx, HasTheClassesOfBothSetsOfADirectory) {
  const auto write = [&](const std::string& set, const Bytes& labels) {
    directory_.write(set + "-images-idx3-ubyte", idx_images(static_cast<std::uint32_t>(labels.size()), 1, 1));
    directory_.write(set + "-labels-idx1-ubyte", idx_labels(labels));
  };
  write("train", {1, 4});
  EXPECT_EQ(open_idx_directory(directory_.path()).train->classes(), 5);
  for (const std::uint8_t other : {std::uint8_t{2}, std::uint8_t{19}}) {  // below and above those of training
    write("t10k", {0, other, 3});
    const DatasetPair sets = open_idx_directory(directory_.path());
    EXPECT_EQ(sets.train->classes(), std::max(5, other + 1));
    EXPECT_EQ(sets.test->classes(), std::max(5, other + 1));
  }
  const DatasetPair told = open_idx_directory(directory_.path(), 21);
  EXPECT_EQ(told.train->classes(), 21);
  EXPECT_EQ(told.test->classes(), 21);
  EXPECT_EQ(
      error_of<DataError>([&] { open_idx_directory(directory_.path(), 19); }),
      file("t10k-labels-idx1-ubyte") +
          ": item 1 has the label 19, but labels are below the number of classes, 19; raise the number of classes "
          "or look at the file");
  EXPECT_THAT(error_of<DataError>([&] { open_idx_directory(directory_.path(), 4); }),
              HasSubstr(file("train-labels-idx1-ubyte") + ": item 1 has the label 4"));
}

TEST_F(OpenIdx, NamesAFileThatCannotBeRead) {
  const auto labels = directory_.write("labels", idx_labels(5));
  EXPECT_EQ(error_of<DataError>([&] { open_idx({.images = file("none"), .labels = labels}); }),
            file("none") + ": cannot be opened: No such file or directory");
  EXPECT_THAT(error_of<DataError>([&] { open_idx({.images = directory_.path(), .labels = labels}); }),
              HasSubstr("expected a regular file"));
}

TEST_F(OpenIdx, NamesTheDamagedFileOfADirectory) {
  directory_.write("train-images-idx3-ubyte", idx_images(5, 3, 4));
  EXPECT_THAT(error_of<DataError>([&] { open_idx_directory(directory_.path()); }),
              AllOf(HasSubstr("found train-images-idx3-ubyte"), HasSubstr("neither train-labels-idx1-ubyte nor")));
  directory_.write("train-labels-idx1-ubyte.gz", gzipped(idx_labels(5)));
  EXPECT_EQ(open_idx_directory(directory_.path()).test, nullptr);
  directory_.write("t10k-images-idx3-ubyte", idx_images(5, 3, 4));
  directory_.write("t10k-labels-idx1-ubyte", {});
  EXPECT_THAT(error_of<DataError>([&] { open_idx_directory(directory_.path()); }),
              HasSubstr(file("t10k-labels-idx1-ubyte") + ": expected an IDX header of 8 bytes"));
}

}  // namespace
}  // namespace sumpter
