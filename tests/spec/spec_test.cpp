#include "sumpter/spec.h"

#include <gtest/gtest.h>

namespace sumpter {
namespace {

TEST(ElementType, SizesAreTheTypes) {
  EXPECT_EQ(size_of(ElementType::f64), 8U);
  EXPECT_EQ(size_of(ElementType::f32), 4U);
  EXPECT_EQ(size_of(ElementType::bf16), 2U);
  EXPECT_EQ(size_of(ElementType::f16), 2U);
  EXPECT_EQ(size_of(ElementType::i64), 8U);
  EXPECT_EQ(size_of(ElementType::i16), 2U);
  EXPECT_EQ(size_of(ElementType::boolean), 1U);
  EXPECT_EQ(size_of(WireFormat::f32), 4U);
  EXPECT_EQ(size_of(WireFormat::bf16), 2U);
  EXPECT_EQ(size_of(WireFormat::f16), 2U);
  EXPECT_EQ(size_of(WireFormat::i8), 1U);
}

TEST(Supports, FollowsTheTypes) {
  EXPECT_TRUE(supports(ElementType::boolean, Reduction::sum));
  EXPECT_FALSE(supports(ElementType::boolean, Reduction::average));
  EXPECT_FALSE(supports(ElementType::f32, Reduction::bitwise_and));
  EXPECT_TRUE(supports(ElementType::u8, Reduction::bitwise_xor));
  EXPECT_FALSE(supports(ElementType::i32, Reduction::weighted_mean));
  EXPECT_TRUE(supports(ElementType::bf16, Reduction::weighted_mean));
  EXPECT_TRUE(supports(ElementType::i64, Reduction::average));
}

}  // namespace
}  // namespace sumpter
