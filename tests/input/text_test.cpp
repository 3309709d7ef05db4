#include "input/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <set>

#include "idx_files.h"
#include "sumpter/error.h"
#include "tests/support/error_of.h"

namespace sumpter {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using tests::error_of;

// Byte i is i modulo 251: a prime, so that no window of 200 bytes looks like another one for long.
Bytes counted(std::size_t bytes) {
  Bytes text(bytes);
  for (std::size_t i = 0; i < bytes; ++i) text[i] = static_cast<std::uint8_t>(i % 251);
  return text;
}

Bytes window(const Dataset& set, const Item& item) {
  Bytes bytes(set.image_bytes());
  EXPECT_EQ(set.get(item, bytes), 0);
  return bytes;
}

Bytes stretch(const Bytes& text, std::size_t begin, std::size_t size) {
  const auto first = text.begin() + static_cast<std::ptrdiff_t>(begin);
  return {first, first + static_cast<std::ptrdiff_t>(size)};
}

TEST(OpenText, CutsWindowsThatShareOneByte) {
  const TemporaryDirectory directory;
  const Bytes text = counted(1000);
  const DatasetPair set = open_text(directory.write("text", text), {.context = 16, .test_share = 0.25, .seed = 3});
  for (const auto& part : {set.train, set.test}) {
    ASSERT_NE(part, nullptr);
    EXPECT_EQ(part->shape(), (ImageShape{1, 1, 17}));
    EXPECT_EQ(part->classes(), 256);
    EXPECT_EQ(part->type(), ElementType::u8);
  }
  ASSERT_EQ(set.train->size(), 45U);  // 750 bytes: 46 windows, of which one is left for the shift
  ASSERT_EQ(set.test->size(), 15U);   // 250 bytes: 15 windows of 16, and the byte after the last one
  for (std::uint64_t epoch = 0; epoch < 40; ++epoch) {
    const std::size_t shift = window(*set.train, {.index = 0, .epoch = epoch})[0];  // byte i of the text is i
    ASSERT_LT(shift, 16U);
    for (std::size_t i = 0; i < 45; ++i) {
      EXPECT_EQ(window(*set.train, {.index = i, .epoch = epoch}), stretch(text, i * 16 + shift, 17));
    }
    for (std::size_t i = 0; i < 15; ++i) {
      EXPECT_EQ(window(*set.test, {.index = i, .epoch = epoch}), stretch(text, 750 + i * 16, 17));
    }
  }
}

TEST(OpenText, ShiftsByEpochAndSeed) {
  const TemporaryDirectory directory;
  const auto file = directory.write("text", counted(300));
  const auto shifts = [&](std::uint64_t seed) {
    const DatasetPair set = open_text(file, {.context = 8, .test_share = 0, .seed = seed});
    std::vector<int> all;
    for (std::uint64_t epoch = 0; epoch < 200; ++epoch) all.push_back(window(*set.train, {.epoch = epoch})[0]);
    return all;
  };
  const std::vector<int> first = shifts(1);
  EXPECT_EQ(shifts(1), first);
  EXPECT_NE(shifts(2), first);
  EXPECT_EQ(std::set<int>(first.begin(), first.end()), (std::set<int>{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST(OpenText, UsesEveryByteThatThereIsRoomFor) {
  const TemporaryDirectory directory;
  for (std::size_t bytes = 12; bytes < 40; ++bytes) {
    const Bytes text = counted(bytes);
    const DatasetPair set = open_text(directory.write("text", text), {.context = 6, .test_share = 0});
    EXPECT_EQ(set.test, nullptr);
    EXPECT_EQ(set.train->size(), bytes / 6 - 1);
    std::size_t end = 0;
    for (std::uint64_t epoch = 0; epoch < 60; ++epoch) {
      const Bytes last = window(*set.train, {.index = set.train->size() - 1, .epoch = epoch});
      end = std::max<std::size_t>(end, last.back() + std::size_t{1});
      EXPECT_EQ(last, stretch(text, last.front(), 7));
    }
    EXPECT_EQ(end, bytes / 6 * 6);  // with the largest shift
  }
}

TEST(OpenText, JoinsTheFilesOfADirectoryInTheOrderOfTheirNames) {
  const TemporaryDirectory directory;
  const Bytes text = counted(120);
  directory.write("b", stretch(text, 50, 30));
  directory.write("a", stretch(text, 0, 50));
  directory.write("aa", {});
  directory.write("c", stretch(text, 80, 40));
  const TemporaryDirectory elsewhere;
  std::filesystem::create_symlink(elsewhere.write("other", counted(77)), directory.path() / "ab");
  std::filesystem::create_directory(directory.path() / "ac");
  const DatasetPair set = open_text(directory.path(), {.context = 1, .test_share = 0});
  ASSERT_EQ(set.train->size(), 119U);
  for (std::size_t i = 0; i < 119; ++i) EXPECT_EQ(window(*set.train, {.index = i}), stretch(text, i, 2));
}

TEST(OpenText, NamesWhatHasNoText) {
  const TemporaryDirectory directory;
  const std::string path = directory.path().string();
  EXPECT_EQ(error_of<DataError>([&] { open_text(path); }),
            path + ": no text in this directory; it has no regular files");
  const auto empty = directory.write("empty", {});
  EXPECT_EQ(error_of<DataError>([&] { open_text(empty); }), empty.string() + ": expected text, found 0 bytes");
  EXPECT_EQ(error_of<DataError>([&] { open_text(path); }), path + ": expected text, found 0 bytes");
  EXPECT_THAT(error_of<DataError>([&] { open_text(path + "/none"); }), HasSubstr("/none: cannot be opened"));
}

TEST(OpenText, NamesTheSetThatATextIsTooShortFor) {
  const TemporaryDirectory directory;
  const auto open = [&](std::size_t bytes, double share) {
    open_text(directory.write("text", counted(bytes)), {.context = 16, .test_share = share});
  };
  EXPECT_THAT(error_of<RequestError>([&] { open(31, 0); }),
              AllOf(HasSubstr("text: too short: the training set"), HasSubstr("has 31 of its bytes, but needs 32"),
                    testing::EndsWith("a context of 16; give a longer text or choose a model with a shorter context")));
  EXPECT_THAT(error_of<RequestError>([&] { open(160, 0.1); }),
              AllOf(HasSubstr("too short: the test set"), HasSubstr("has 16 of its bytes, but needs 17")));
  EXPECT_THAT(error_of<RequestError>([&] { open(1, 0.1); }), HasSubstr("the training set"));
  open(32, 0);
  open(170, 0.1);
}

TEST(OpenText, RefusesOptionsThatAreOutOfRange) {
  const TemporaryDirectory directory;
  const auto file = directory.write("text", counted(1000));
  EXPECT_EQ(error_of<RequestError>([&] { open_text(file, {.context = 0}); }),
            "text: a context of 0 bytes: only models that read text, such as gpt, take a text");
  EXPECT_EQ(error_of<RequestError>([&] { open_text(file, {.context = (std::size_t{1} << 30) + 1}); }),
            "text: a context of 1073741825 bytes was asked for; it must be 1 to 1073741824");
  for (const double share : {-0.1, 1.0, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THAT(error_of<RequestError>([&] { open_text(file, {.context = 8, .test_share = share}); }),
                HasSubstr("a test share of"));
  }
}

}  // namespace
}  // namespace sumpter
