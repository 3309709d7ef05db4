#include "input/open.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "idx_files.h"
#include "sumpter/error.h"

namespace sumpter {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string request_error(const std::string& text) {
  try {
    open_dataset(text);
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
  const DatasetPair one = open_dataset((directory.path() / "train-images-idx3-ubyte.gz").string());
  EXPECT_EQ(one.train->size(), 6U);
  EXPECT_EQ(one.test, nullptr);
}

TEST(OpenDataset, SaysWhatItLookedFor) {
  const TemporaryDirectory directory;
  EXPECT_THAT(request_error(directory.path().string()),
              AllOf(HasSubstr(directory.path().string()), HasSubstr("train-images-idx3-ubyte")));
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
  std::vector<int> of_class(10);
  Bytes image(784);
  for (std::size_t index = 0; index < set.train->size(); ++index) {
    ++of_class.at(static_cast<std::size_t>(set.train->get({.index = index}, image)));
  }
  EXPECT_THAT(of_class, testing::Each(6000));
}

}  // namespace
}  // namespace sumpter
