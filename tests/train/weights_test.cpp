#include "train/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "sumpter/error.h"

namespace sumpter {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

class Weights : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "sumpter-weights-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { fs::remove_all(directory_); }

  std::string refusal_of(const fs::path& file) {
    try {
      require_writable(file);
    } catch (const RequestError& error) {
      return error.what();
    }
    return "";
  }

  const std::vector<float> one_ = {1, 2, 3, 4, 5, 6}, two_ = {-1};
  const std::vector<NamedArray> arrays_ = {{"fc.weight", {2, 3}, one_}, {"fc.bias", {1}, two_}};
  fs::path directory_;
};

TEST_F(Weights, DigestDependsOnNamesShapesAndEveryBit) {
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
  std::vector<float> changed = one_;
  changed[5] = std::nextafter(changed[5], 7.0F);
  other = arrays_;
  other[0].values = changed;
  EXPECT_NE(digest(other), all);
  std::swap(other[0], other[1]);
  EXPECT_NE(digest(other), all);
}

TEST_F(Weights, FileIsLengthThenHeaderThenData) {
  const fs::path file = directory_ / "w.safetensors";
  write_safetensors(arrays_, file);
  const std::string content = read_file(file);

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
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_), {}), 1) << "nothing but the file is left";
}

TEST_F(Weights, OldFileStaysWhenTheNewOneCannotBeWritten) {
  const fs::path file = directory_ / "w.safetensors";
  write_safetensors(arrays_, file);
  const std::string before = read_file(file);
  fs::create_directory(file.string() + ".partial");  // in the way of the temporary file
  EXPECT_THROW(write_safetensors({}, file), SystemError);
  EXPECT_EQ(read_file(file), before);
}

TEST_F(Weights, UnwritablePlacesAreRefusedBeforehand) {
  EXPECT_EQ(refusal_of(directory_ / "new"), "");
  EXPECT_EQ(refusal_of("new"), "");
  EXPECT_THAT(refusal_of(directory_ / "missing" / "w"), HasSubstr("does not exist"));
  EXPECT_THAT(refusal_of(directory_), HasSubstr("is a directory"));
  EXPECT_THAT(refusal_of("/dev/full"), HasSubstr("is a directory or a device"));
  if (geteuid() == 0) return;  // root may write anywhere
  fs::permissions(directory_, fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_THAT(refusal_of(directory_ / "w"), HasSubstr("cannot be written"));
  fs::permissions(directory_, fs::perms::owner_all);
}

}  // namespace
}  // namespace sumpter
