#include "input/synthetic.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <map>
#include <vector>

#include "sumpter/error.h"

namespace sumpter {
namespace {

struct Drawn {
  std::int64_t label = -1;
  std::vector<std::uint8_t> image;
  bool operator==(const Drawn&) const = default;
};

Drawn draw(const Dataset& set, std::size_t index) {
  Drawn drawn{.image = std::vector<std::uint8_t>(set.shape().bytes())};
  drawn.label = set.get({.index = index}, drawn.image);
  return drawn;
}

std::uint64_t distance(const std::vector<std::uint8_t>& a, const std::vector<std::uint8_t>& b) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += static_cast<std::uint64_t>(std::abs(a[i] - b[i]));
  return sum;
}

TEST(Synthetic, DependsOnSeedAndItemAlone) {
  const auto set = make_synthetic({.rows = 50, .seed = 3});
  const auto same = make_synthetic({.rows = 90, .seed = 3});
  const auto shifted = make_synthetic({.rows = 40, .seed = 3, .first_item = 10});
  const auto other = make_synthetic({.rows = 50, .seed = 4});
  const Drawn item = draw(*set, 12);
  EXPECT_EQ(draw(*set, 12), item);
  EXPECT_EQ(draw(*same, 12), item);
  EXPECT_EQ(draw(*shifted, 2), item);
  EXPECT_NE(draw(*set, 13).image, item.image);
  EXPECT_NE(draw(*other, 12).image, item.image);
}

// The nearest mean of a class, learnt from some items, names the class of others.
TEST(Synthetic, HasClassesThatCanBeLearnt) {
  constexpr int kClasses = 5;
  const auto train = make_synthetic({.rows = 200, .shape = {1, 13, 11}, .classes = kClasses});
  const auto test = make_synthetic({.rows = 100, .shape = {1, 13, 11}, .classes = kClasses, .first_item = 200});
  std::vector<std::vector<std::uint32_t>> sums(kClasses, std::vector<std::uint32_t>(train->shape().bytes()));
  std::vector<std::uint32_t> count(kClasses);
  for (std::size_t index = 0; index < train->size(); ++index) {
    const Drawn item = draw(*train, index);
    const auto label = static_cast<std::size_t>(item.label);
    ++count.at(label);
    for (std::size_t i = 0; i < item.image.size(); ++i) sums[label][i] += item.image[i];
  }
  for (std::size_t index = 0; index < test->size(); ++index) {
    const Drawn item = draw(*test, index);
    std::size_t nearest = 0;
    std::uint64_t nearest_distance = UINT64_MAX;
    for (std::size_t label = 0; label < kClasses; ++label) {
      ASSERT_GT(count[label], 0U);
      std::vector<std::uint8_t> mean;
      for (const std::uint32_t sum : sums[label]) mean.push_back(static_cast<std::uint8_t>(sum / count[label]));
      const std::uint64_t away = distance(mean, item.image);
      if (away < nearest_distance) nearest = label, nearest_distance = away;
    }
    EXPECT_EQ(static_cast<std::int64_t>(nearest), item.label) << "item " << index;
  }
}

TEST(Synthetic, TakesAnyShape) {
  for (const ImageShape& shape :
       {ImageShape{1, 1, 1}, ImageShape{3, 5, 7}, ImageShape{2, 8, 16}, ImageShape{4, 1, 9}}) {
    const auto set = make_synthetic({.rows = 20, .shape = shape, .classes = 3});
    EXPECT_EQ(set->shape(), shape);
    EXPECT_EQ(set->size(), 20U);
    std::uint64_t pixels = 0;
    for (std::size_t index = 0; index < 20; ++index) {
      const Drawn item = draw(*set, index);
      EXPECT_GE(item.label, 0);
      EXPECT_LT(item.label, 3);
      for (const std::uint8_t pixel : item.image) pixels += pixel;
    }
    EXPECT_GT(pixels, 0U);
  }
}

TEST(SyntheticText, FollowsEachByteWithOneOfFour) {
  constexpr std::size_t kContext = 200;
  const auto set = make_synthetic_text({.rows = 300, .context = kContext, .seed = 6});
  EXPECT_EQ(set->shape(), (ImageShape{1, 1, kContext + 1}));
  EXPECT_EQ(set->size(), 300U);
  EXPECT_EQ(set->classes(), 256);
  std::map<std::uint8_t, std::map<std::uint8_t, int>> followers;
  for (std::size_t index = 0; index < set->size(); ++index) {
    const Drawn item = draw(*set, index);
    EXPECT_EQ(item.label, 0);
    for (std::size_t i = 0; i < kContext; ++i) ++followers[item.image[i]][item.image[i + 1]];
  }
  EXPECT_EQ(followers.size(), 64U);  // 300 rows begin with each of them
  for (const auto& [byte, counts] : followers) {
    EXPECT_GE(byte, 32);
    EXPECT_LT(byte, 96);
    int all = 0;
    for (const auto& [next, count] : counts) all += count;
    if (all < 200) continue;  // too few to have seen all four
    EXPECT_EQ(counts.size(), 4U) << "after " << int{byte};
    for (const auto& [next, count] : counts) EXPECT_NEAR(count, all / 4.0, 4 * std::sqrt(all * 3 / 16.0));
  }
}

TEST(SyntheticText, DependsOnSeedAndItemAlone) {
  const auto set = make_synthetic_text({.rows = 50, .context = 40, .seed = 3});
  const auto shifted = make_synthetic_text({.rows = 9, .context = 40, .seed = 3, .first_item = 10});
  const Drawn item = draw(*set, 12);
  EXPECT_EQ(draw(*set, 12), item);
  EXPECT_EQ(draw(*shifted, 2), item);
  EXPECT_NE(draw(*set, 13), item);
  EXPECT_NE(draw(*make_synthetic_text({.rows = 50, .context = 40, .seed = 4}), 12), item);
}

TEST(SyntheticText, RefusesWhatCannotBe) {
  EXPECT_THROW(make_synthetic_text({.rows = 0}), RequestError);
  EXPECT_THROW(make_synthetic_text({.context = 0}), RequestError);
  EXPECT_THROW(make_synthetic_text({.context = SIZE_MAX}), RequestError);
  EXPECT_THROW(make_synthetic_text({.rows = SIZE_MAX}), RequestError);
}

TEST(Synthetic, RefusesWhatCannotBe) {
  EXPECT_THROW(make_synthetic({.rows = 0}), RequestError);
  EXPECT_THROW(make_synthetic({.classes = 0}), RequestError);
  EXPECT_THROW(make_synthetic({.shape = {3, 0, 32}}), RequestError);
  EXPECT_THROW(make_synthetic({.shape = {1, std::size_t{1} << 32, std::size_t{1} << 32}}), RequestError);
  EXPECT_THROW(make_synthetic({.shape = {SIZE_MAX, 2, 2}}), RequestError);
}

}  // namespace
}  // namespace sumpter
