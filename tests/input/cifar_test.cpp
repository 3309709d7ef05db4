#include "input/cifar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "cifar_files.h"
#include "input/random.h"
#include "sumpter/error.h"
#include "tests/support/error_of.h"

namespace sumpter {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using tests::error_of;

void expect_items(const Dataset& set, std::size_t first, std::size_t items, int classes) {
  EXPECT_EQ(set.shape(), (ImageShape{3, 32, 32}));
  EXPECT_EQ(set.classes(), classes);
  ASSERT_EQ(set.size(), items);
  Bytes image(kCifarImageBytes), expected(kCifarImageBytes);
  for (std::size_t i = 0; i < items; ++i) {
    EXPECT_EQ(set.get({.index = i}, image), static_cast<std::int64_t>((first + i) % static_cast<std::size_t>(classes)));
    for (std::size_t byte = 0; byte < kCifarImageBytes; ++byte) expected[byte] = cifar_byte(first + i, byte);
    EXPECT_EQ(image, expected) << "item " << i;
  }
}

DatasetPair open(const std::filesystem::path& directory) {
  const auto found = find_cifar(directory);
  EXPECT_TRUE(found);
  return open_cifar(found.value());
}

// Three rows a file, but for the last one, which has two.
void write_cifar10(const TemporaryDirectory& directory, const std::string& folder = "") {
  for (std::size_t file = 0; file < 5; ++file) {
    directory.write(folder + "data_batch_" + std::to_string(file + 1) + ".bin",
                    cifar_rows(CifarKind::cifar10, 3 * file, file < 4 ? 3 : 2));
  }
}

TEST(Cifar, ReadsCifar10) {
  const TemporaryDirectory directory;
  write_cifar10(directory);
  const DatasetPair train = open(directory.path());
  expect_items(*train.train, 0, 14, 10);
  EXPECT_EQ(train.test, nullptr);
  directory.write("test_batch.bin", cifar_rows(CifarKind::cifar10, 50, 4));
  expect_items(*open(directory.path()).test, 50, 4, 10);
}

TEST(Cifar, ReadsTheFineLabelsOfCifar100) {
  const TemporaryDirectory directory;
  directory.write("train.bin", cifar_rows(CifarKind::cifar100, 90, 15));
  const DatasetPair train = open(directory.path());
  expect_items(*train.train, 90, 15, 100);
  EXPECT_EQ(train.test, nullptr);
  directory.write("test.bin", cifar_rows(CifarKind::cifar100, 7, 2));
  expect_items(*open(directory.path()).test, 7, 2, 100);
}

TEST(Cifar, LooksIntoTheDirectoryOfTheArchive) {
  const TemporaryDirectory ten, hundred, neither;
  std::filesystem::create_directory(ten.path() / "cifar-10-batches-bin");
  write_cifar10(ten, "cifar-10-batches-bin/");
  EXPECT_EQ(open(ten.path()).train->size(), 14U);
  std::filesystem::create_directory(hundred.path() / "cifar-100-binary");
  hundred.write("cifar-100-binary/train.bin", cifar_rows(CifarKind::cifar100, 0, 3));
  EXPECT_EQ(open(hundred.path()).train->classes(), 100);
  EXPECT_FALSE(find_cifar(neither.path()));
  EXPECT_FALSE(find_cifar(neither.path() / "nothing"));
}

TEST(Cifar, NamesTheFileThatIsMissing) {
  const TemporaryDirectory directory;
  write_cifar10(directory);
  std::filesystem::remove(directory.path() / "data_batch_4.bin");
  EXPECT_THAT(error_of<DataError>([&] { open(directory.path()); }),
              AllOf(HasSubstr(directory.path().string()), HasSubstr("found no data_batch_4.bin, but CIFAR-10 needs")));
}

TEST(Cifar, NamesTheItemThatIsCutOff) {
  for (const CifarKind kind : {CifarKind::cifar10, CifarKind::cifar100}) {
    const std::size_t row = cifar_row_bytes(kind);
    const Bytes whole = cifar_rows(kind, 0, 3);
    for (const std::size_t size : {std::size_t{1}, row - 1, row + 1, 2 * row + 1, 3 * row - 1}) {
      const Bytes content(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
      EXPECT_EQ(error_of<DataError>([&] { check_cifar(content, "train.bin", kind); }),
                "train.bin: expected rows of " + std::to_string(row) + " bytes, found " + std::to_string(size) +
                    " bytes: item " + std::to_string(size / row) + " is cut off; copy or download it again");
    }
    EXPECT_EQ(error_of<DataError>([&] { check_cifar({}, "train.bin", kind); }),
              "train.bin: expected rows of " + std::to_string(row) + " bytes, found an empty file");
    EXPECT_EQ(check_cifar(whole, "train.bin", kind), 3U);
  }
}

TEST(Cifar, NamesFileAndItemOfALabelThatIsOutOfRange) {
  const TemporaryDirectory directory;
  write_cifar10(directory);
  Bytes ten = cifar_rows(CifarKind::cifar10, 0, 3);
  ten[2 * cifar_row_bytes(CifarKind::cifar10)] = 10;
  const auto file = directory.write("data_batch_3.bin", ten);
  EXPECT_EQ(error_of<DataError>([&] { open(directory.path()); }),
            file.string() + ": item 2: expected a label of 0 to 9, found 10");

  Bytes hundred = cifar_rows(CifarKind::cifar100, 0, 3);
  const std::size_t row = cifar_row_bytes(CifarKind::cifar100);
  hundred[row + 1] = 100;
  EXPECT_EQ(error_of<DataError>([&] { check_cifar(hundred, "train.bin", CifarKind::cifar100); }),
            "train.bin: item 1: expected a fine label of 0 to 99, found 100");
  hundred[0] = 20;
  EXPECT_EQ(error_of<DataError>([&] { check_cifar(hundred, "train.bin", CifarKind::cifar100); }),
            "train.bin: item 0: expected a coarse label of 0 to 19, found 20");
}

// What must hold for any bytes: they are whole rows with labels in range, or a DataError that names the file.
bool is_valid(const Bytes& content, CifarKind kind) {
  const std::size_t row = cifar_row_bytes(kind);
  try {
    const std::size_t rows = check_cifar(content, "mutated", kind);
    EXPECT_GT(rows, 0U);
    EXPECT_EQ(rows * row, content.size());
    for (std::size_t i = 0; i < rows; ++i) {
      if (kind == CifarKind::cifar10) {
        EXPECT_LT(content[i * row], 10);
      } else {
        EXPECT_LT(content[i * row], 20);
        EXPECT_LT(content[i * row + 1], 100);
      }
    }
    return true;
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), testing::StartsWith("mutated: "));
    return false;
  }
}

Bytes mutated(Bytes bytes, std::size_t row, Random& random) {
  const std::size_t at = random.below(bytes.size());
  switch (random.below(5)) {
    case 0:
      bytes[at] = static_cast<std::uint8_t>(random.next());
      break;
    case 1:
      bytes[at / row * row + random.below(2)] = static_cast<std::uint8_t>(random.next());  // a label, or beside it
      break;
    case 2:
      bytes.resize(at);
      break;
    case 3:
      bytes.resize(at / row * row);
      break;
    default:
      bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at), 1 + random.below(row),
                   static_cast<std::uint8_t>(random.next()));
      break;
  }
  return bytes;
}

TEST(Cifar, SurvivesEveryMutation) {
  Random random(2027);
  int valid = 0, invalid = 0;
  for (const CifarKind kind : {CifarKind::cifar10, CifarKind::cifar100}) {
    const Bytes seed = cifar_rows(kind, 0, 4);
    for (int round = 0; round < 1000; ++round)
      ++(is_valid(mutated(seed, cifar_row_bytes(kind), random), kind) ? valid : invalid);
  }
  EXPECT_GT(valid, 400);
  EXPECT_GT(invalid, 400);
}

}  // namespace
}  // namespace sumpter
