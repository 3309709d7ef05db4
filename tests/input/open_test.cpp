#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "cifar_files.h"
#include "idx_files.h"
#include "sumpter/error.h"
#include "sumpter/input.h"

namespace sumpter {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string request_error(const std::string& text, const OpenOptions& options = {}) {
  try {
    open_dataset(text, options);
  } catch (const RequestError& error) {
    return error.what();
  }
  ADD_FAILURE() << "accepted '" << text << "'";
  return {};
}

TEST(OpenDataset, MakesSyntheticData) {
  const DatasetPair plain = open_dataset("synthetic");
  EXPECT_EQ(plain.train->size(), 60'000U);
  EXPECT_EQ(plain.train->shape(), (ImageShape{3, 32, 32}));
  ASSERT_NE(plain.test, nullptr);
  EXPECT_EQ(plain.test->size(), 10'000U);

  const DatasetPair set = open_dataset("synthetic:rows=70,test_rows=30,shape=1x5x7,classes=4,seed=9");
  EXPECT_EQ(set.train->size(), 70U);
  EXPECT_EQ(set.test->size(), 30U);
  EXPECT_EQ(set.test->shape(), (ImageShape{1, 5, 7}));
  EXPECT_EQ(set.train->classes(), 4);
  EXPECT_EQ(plain.train->classes(), 10);
  EXPECT_EQ(plain.test->classes(), 10);
  EXPECT_EQ(open_dataset("synthetic", {.classes = 7}).train->classes(), 7);
  EXPECT_EQ(open_dataset("synthetic:classes=4", {.classes = 7}).test->classes(), 4);
  EXPECT_EQ(open_dataset("synthetic:test_rows=0").test, nullptr);
  EXPECT_EQ(open_dataset("synthetic", {.synthetic_shape = {1, 28, 28}}).train->shape(), (ImageShape{1, 28, 28}));
}

TEST(OpenDataset, ShowsOtherItemsInTheTestSet) {
  const DatasetPair set = open_dataset("synthetic:rows=7,test_rows=7,shape=1x8x8");
  for (std::size_t index = 0; index < 7; ++index) {
    Bytes train(64), test(64);
    set.train->get({.index = index}, train);
    set.test->get({.index = index}, test);
    EXPECT_NE(train, test);
  }
}

TEST(OpenDataset, NamesTheSyntheticSettingThatIsWrong) {
  EXPECT_THAT(request_error("synthetic:row=7"), AllOf(HasSubstr("'row'"), HasSubstr("test_rows")));
  EXPECT_THAT(request_error("synthetic:rows=-7"), HasSubstr("rows: '-7'"));
  EXPECT_THAT(request_error("synthetic:rows=7k"), HasSubstr("rows: '7k'"));
  EXPECT_THAT(request_error("synthetic:rows"), HasSubstr("rows: ''"));
  EXPECT_THAT(request_error("synthetic:shape=3x32"), HasSubstr("shape"));
  EXPECT_THAT(request_error("synthetic:shape=3x32x32x1"), HasSubstr("3x32x32x1"));
  EXPECT_THAT(request_error("synthetic:classes=99999999999"), HasSubstr("classes"));
  EXPECT_THAT(request_error("synthetic:rows=0"), HasSubstr("0 rows"));
  EXPECT_THAT(request_error("synthetic:classes=0"), HasSubstr("classes"));
}

TEST(OpenDataset, TakesEachSyntheticSettingOnce) {
  for (const std::string setting : {"rows=7", "test_rows=7", "shape=1x5x7", "classes=4", "seed=9"}) {
    const std::string key = setting.substr(0, setting.find('='));
    EXPECT_EQ(request_error("synthetic:" + setting + ",rows=9,test_rows=9,shape=1x1x1,classes=9,seed=1"),
              "synthetic: " + key + " is given twice; give it once");
  }
}

TEST(OpenDataset, MakesSyntheticText) {
  const DatasetPair set = open_dataset("synthetic:rows=70,test_rows=30,seed=9", {.text = true, .context = 20});
  EXPECT_EQ(set.train->size(), 70U);
  EXPECT_EQ(set.train->shape(), (ImageShape{1, 1, 21}));
  EXPECT_EQ(set.test->size(), 30U);
  EXPECT_EQ(set.test->classes(), 256);
  for (std::size_t index = 0; index < 30; ++index) {
    Bytes train(21), test(21);
    set.train->get({.index = index}, train);
    set.test->get({.index = index}, test);
    EXPECT_NE(train, test);
  }
  EXPECT_THAT(request_error("synthetic:shape=1x1x9", {.text = true}),
              AllOf(HasSubstr("'shape' is not a setting of text"), HasSubstr("rows, test_rows and seed")));
}

TEST(OpenDataset, ReadsTextWhereToldTo) {
  const TemporaryDirectory directory;
  const Bytes bytes(1000, 'x');
  const std::string file = directory.write("book.txt", bytes).string();
  for (const std::string& place : {file, directory.path().string()}) {
    const DatasetPair told = open_dataset("text:" + place, {.context = 20});
    EXPECT_EQ(told.train->size(), 44U);  // of 900 bytes
    ASSERT_NE(told.test, nullptr);
    EXPECT_EQ(told.test->size(), 4U);  // of 100 bytes
    EXPECT_EQ(open_dataset(place, {.text = true, .context = 20}).train->shape(), (ImageShape{1, 1, 21}));
  }
  EXPECT_THAT(request_error(file), HasSubstr("for text write text:" + file));
  EXPECT_THAT(request_error(directory.path().string()), HasSubstr("for text write text:" + directory.path().string()));
  EXPECT_THAT(request_error("text:/no/such/place"), AllOf(HasSubstr("'/no/such/place'"), HasSubstr("text:PATH")));
  EXPECT_THAT(request_error("text:" + file, {.context = 600}), HasSubstr("too short"));
  EXPECT_THAT(request_error("text"), HasSubstr("'text'"));
}

TEST(OpenDataset, PassesTheSeedToTheWindowsOfText) {
  const TemporaryDirectory directory;
  Bytes bytes(250);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i);
  const std::string text = "text:" + directory.write("bytes", bytes).string();
  std::vector<Bytes> first_windows;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    first_windows.emplace_back(21);
    open_dataset(text, {.context = 20, .seed = seed}).train->get({}, first_windows.back());
  }
  EXPECT_THAT(first_windows, testing::Contains(testing::Ne(first_windows[0])));
}

TEST(OpenDataset, FindsCifar) {
  const TemporaryDirectory directory;
  directory.write("train.bin", cifar_rows(CifarKind::cifar100, 0, 5));
  directory.write("test.bin", cifar_rows(CifarKind::cifar100, 0, 3));
  const DatasetPair set = open_dataset(directory.path().string());
  EXPECT_EQ(set.train->size(), 5U);
  for (const int classes : {0, 5, 1000}) {  // it has its own
    EXPECT_EQ(open_dataset(directory.path().string(), {.classes = classes}).train->classes(), 100);
    EXPECT_EQ(open_dataset(directory.path().string(), {.classes = classes}).test->classes(), 100);
  }
  ASSERT_NE(set.test, nullptr);
  EXPECT_EQ(set.test->size(), 3U);
}

TEST(OpenDataset, FindsIdxFilesInADirectoryAndBesideAnImagesFile) {
  const TemporaryDirectory directory;
  directory.write("train-images-idx3-ubyte.gz", gzipped(idx_images(6, 2, 2)));
  directory.write("train-labels-idx1-ubyte", idx_labels(6));
  directory.write("t10k-images-idx3-ubyte", idx_images(4, 2, 2));
  directory.write("t10k-labels-idx1-ubyte.gz", gzipped(idx_labels(4)));
  const DatasetPair both = open_dataset(directory.path().string());
  EXPECT_EQ(both.train->size(), 6U);
  ASSERT_NE(both.test, nullptr);
  EXPECT_EQ(both.test->size(), 4U);
  EXPECT_EQ(both.train->classes(), 6);
  EXPECT_EQ(both.test->classes(), 6);
  EXPECT_EQ(open_dataset(directory.path().string(), {.classes = 8}).test->classes(), 8);
  EXPECT_EQ(open_dataset((directory.path() / "t10k-images-idx3-ubyte").string()).train->classes(), 4);
  EXPECT_EQ(open_dataset((directory.path() / "t10k-images-idx3-ubyte").string(), {.classes = 8}).train->classes(), 8);
  const DatasetPair one = open_dataset((directory.path() / "train-images-idx3-ubyte.gz").string());
  EXPECT_EQ(one.train->size(), 6U);
  EXPECT_EQ(one.test, nullptr);
}

TEST(OpenDataset, SaysWhatItLookedFor) {
  const TemporaryDirectory directory;
  EXPECT_THAT(request_error(directory.path().string()),
              AllOf(HasSubstr(directory.path().string()), HasSubstr("train-images-idx3-ubyte"),
                    HasSubstr("data_batch_1.bin"), HasSubstr("cifar-100-binary")));
  EXPECT_THAT(request_error("/no/such/place"), AllOf(HasSubstr("'/no/such/place'"), HasSubstr("synthetic")));
  EXPECT_THAT(request_error(""), HasSubstr("''"));
  EXPECT_THAT(request_error(directory.write("pictures", {1, 2}).string()), HasSubstr("images-idx3"));
  EXPECT_THAT(request_error(directory.write("a-images-idx3-ubyte", idx_images(1, 1, 1)).string()),
              HasSubstr("a-labels-idx1-ubyte"));
}

TEST(OpenDataset, ReadsFashionMnist) {
  const char* const directory = "/usr/share/datasets/fashion-mnist";  // Debian's dataset-fashion-mnist
  if (!std::filesystem::exists(directory)) GTEST_SKIP() << "dataset-fashion-mnist is not installed";
  const DatasetPair set = open_dataset(directory);
  EXPECT_EQ(set.train->size(), 60'000U);
  ASSERT_NE(set.test, nullptr);
  EXPECT_EQ(set.test->size(), 10'000U);
  EXPECT_EQ(set.train->shape(), (ImageShape{1, 28, 28}));
  EXPECT_EQ(set.train->classes(), 10);
  std::vector<int> of_class(10);
  Bytes image(784);
  for (std::size_t index = 0; index < set.train->size(); ++index) {
    ++of_class.at(static_cast<std::size_t>(set.train->get({.index = index}, image)));
  }
  EXPECT_THAT(of_class, testing::Each(6000));
}

}  // namespace
}  // namespace sumpter
