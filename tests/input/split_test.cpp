#include "input/split.h"

#include <gtest/gtest.h>

#include <array>

namespace sumpter {
namespace {

TEST(SplitRows, GivesTheLargerPartsFirst) {
  constexpr std::array<RowRange, 4> kNine = {{{0, 3}, {3, 2}, {5, 2}, {7, 2}}};
  constexpr std::array<RowRange, 4> kThree = {{{0, 1}, {1, 1}, {2, 1}, {3, 0}}};
  for (std::size_t part = 0; part < 4; ++part) {
    EXPECT_EQ(split_rows(9, 4, part), kNine[part]);
    EXPECT_EQ(split_rows(3, 4, part), kThree[part]);
  }
}

TEST(SplitRows, IsContiguousCompleteAndEven) {
  for (std::size_t rows = 0; rows <= 40; ++rows) {
    for (std::size_t parts = 1; parts <= 9; ++parts) {
      std::size_t end = 0;
      for (std::size_t part = 0; part < parts; ++part) {
        const RowRange range = split_rows(rows, parts, part);
        EXPECT_EQ(range.begin, end);
        EXPECT_GE(range.rows, rows / parts);
        EXPECT_LE(range.rows, (rows + parts - 1) / parts);
        end += range.rows;
      }
      EXPECT_EQ(end, rows);
    }
  }
}

}  // namespace
}  // namespace sumpter
