#include "step/blocks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace sumpter {
namespace {

constexpr std::size_t kBlock = kernels::kNormBlock;

const std::vector<ParameterInfo> kSome = {{"a", kBlock + 1, 0}, {"b", 0, 0}, {"c", 3, 1}, {"d", 2 * kBlock, 2}};

struct Seen {
  std::size_t parameter, begin, count, block;
  bool operator==(const Seen&) const = default;
};

std::vector<Seen> seen(const GradientBlocks& blocks, BlockRange range) {
  std::vector<Seen> all;
  blocks.for_each_stretch(range, [&](const Stretch& stretch, std::size_t block) {
    all.push_back({stretch.parameter, stretch.begin, stretch.count, block});
  });
  return all;
}

TEST(GradientBlocks, BeginAnewAtEachParameter) {
  const GradientBlocks blocks(kSome);
  EXPECT_EQ(blocks.size(), 5U);
  EXPECT_EQ(seen(blocks, blocks.all()),
            (std::vector<Seen>{{0, 0, kBlock + 1, 0}, {2, 0, 3, 2}, {3, 0, 2 * kBlock, 3}}));
  EXPECT_EQ(seen(blocks, {1, 4}), (std::vector<Seen>{{0, kBlock, 1, 1}, {2, 0, 3, 2}, {3, 0, kBlock, 3}}));
  EXPECT_TRUE(seen(blocks, {2, 2}).empty());
}

TEST(GradientBlocks, SharesAreAllOfThem) {
  const GradientBlocks blocks(kSome);
  for (int members = 1; members <= 7; ++members) {
    std::size_t next = 0;
    for (int rank = 0; rank < members; ++rank) {
      const BlockRange share = blocks.share(rank, members);
      EXPECT_EQ(share.begin, next);
      EXPECT_LE(share.end - share.begin, 5U / static_cast<std::size_t>(members) + 1);
      next = share.end;
    }
    EXPECT_EQ(next, 5U);
  }
}

template <typename T>
void expect_norm(ElementType type) {
  const GradientBlocks blocks(kSome);
  std::vector<std::vector<T>> gradients;
  for (const ParameterInfo& parameter : kSome) gradients.emplace_back(parameter.count, T{0});
  gradients[0][0] = 1;
  gradients[0][kBlock] = 2;
  gradients[2][2] = -4;
  gradients[3][kBlock - 1] = 6;
  gradients[3][kBlock] = 8;
  std::vector<void*> addresses;
  for (std::vector<T>& gradient : gradients) addresses.push_back(gradient.data());
  std::vector<double> squares(5, -1);
  sum_squares(blocks, {1, 4}, addresses, type, squares);
  EXPECT_EQ(squares, (std::vector<double>{-1, 4, 16, 36, -1}));
  sum_squares(blocks, blocks.all(), addresses, type, squares);
  EXPECT_EQ(squares, (std::vector<double>{1, 4, 16, 36, 64}));
  EXPECT_EQ(norm_of(squares), 11);
}

TEST(Norm, IsSummedByBlocks) {
  expect_norm<float>(ElementType::f32);
  expect_norm<double>(ElementType::f64);
}

TEST(ClipScale, IsTorchs) {
  EXPECT_EQ(clip_scale(0, 1), 1);
  EXPECT_EQ(clip_scale(0.5, 1), 1);
  EXPECT_EQ(clip_scale(4, 2), 2 / (4 + 1e-6));
  EXPECT_LT(clip_scale(2, 2), 1);  // the small number that is added counts
  EXPECT_EQ(clip_scale(std::numeric_limits<double>::infinity(), 1), 0);
  EXPECT_TRUE(std::isnan(clip_scale(std::numeric_limits<double>::quiet_NaN(), 1)));
}

}  // namespace
}  // namespace sumpter
