// How operations are cut: every element in exactly one piece, whatever the sizes.
#include "exchange/geometry.h"

#include <gtest/gtest.h>

#include <vector>

namespace sumpter::exchange {
namespace {

constexpr std::size_t kCounts[] = {0, 1, 15, 16, 17, 1'000, 4'096, 65'537};
constexpr std::size_t kPieces[] = {64, 4'096, std::size_t{16} << 20};

// Marks each element of a range; a second visit is an error.
class Cover {
 public:
  explicit Cover(std::size_t count) : seen_(count, 0) {}
  void add(Range range) {
    ASSERT_LE(range.begin, range.end);
    ASSERT_LE(range.end, seen_.size());
    for (std::size_t i = range.begin; i < range.end; ++i) ++seen_[i];
  }
  bool complete() const {
    return std::all_of(seen_.begin(), seen_.end(), [](int times) { return times == 1; });
  }

 private:
  std::vector<int> seen_;
};

TEST(ForEachRun, SplitsARangeAtTheBordersOfTheParts) {
  const Part parts[] = {{nullptr, 3}, {nullptr, 0}, {nullptr, 5}, {nullptr, 2}};
  std::vector<std::vector<std::size_t>> runs;
  for_each_run(parts, {1, 9}, [&](std::size_t part, std::size_t begin, std::size_t size, std::size_t offset) {
    runs.push_back({part, begin, size, offset});
  });
  EXPECT_EQ(runs, (std::vector<std::vector<std::size_t>>{{0, 1, 2, 0}, {2, 0, 5, 2}, {3, 0, 1, 7}}));
}

TEST(ForEachRun, VisitsNothingForAnEmptyRange) {
  const Part parts[] = {{nullptr, 3}};
  for_each_run(parts, {2, 2}, [](auto...) { FAIL(); });
}

TEST(InPlaceCut, CoversAnAllReduceOnceOverAllShares) {
  for (const std::size_t count : kCounts) {
    for (const std::size_t piece : kPieces) {
      for (const int members : {1, 2, 3, 64}) {
        const InPlaceCut cut({Kind::all_reduce, count, 4, members, 0}, piece);
        Cover cover(count);
        for (int rank = 0; rank < members; ++rank) {
          for (std::size_t index = 0; index < cut.share(rank); ++index) cover.add(cut.range(rank, index));
        }
        EXPECT_TRUE(cover.complete()) << count << " elements, pieces of " << piece << ", " << members << " members";
      }
    }
  }
}

TEST(InPlaceCut, GivesEachMemberItsOwnListElsewhere) {
  struct Case {
    Kind kind;
    std::size_t length;  // elements of one member's list, for 100 each and 3 members
  };
  for (const auto& [kind, length] :
       {Case{Kind::reduce_scatter, 100}, Case{Kind::all_gather, 300}, Case{Kind::broadcast, 100}}) {
    const InPlaceCut cut({kind, 100, 8, 3, 1}, 64);
    for (const int rank : {0, 2}) {
      Cover cover(length);
      for (std::size_t index = 0; index < cut.share(rank); ++index) cover.add(cut.range(rank, index));
      EXPECT_TRUE(cover.complete());
    }
    EXPECT_EQ(cut.share(1), kind == Kind::broadcast ? 0 : cut.share(0));
  }
}

TEST(InPlaceCut, LetsEveryMemberWorkOnWhatOnePieceWouldHold) {
  const InPlaceCut cut({Kind::all_reduce, 8'192, 4, 4, 0}, std::size_t{1} << 20);
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(cut.share(rank), 1U);
}

TEST(InPlaceCut, NeverHasMorePiecesThanAShareCanCount) {
  const std::size_t huge = std::size_t{1} << 40;
  const InPlaceCut cut({Kind::all_reduce, huge, 1, 1, 0}, 64);
  EXPECT_LT(cut.share(0), std::size_t{1} << kIndexBits);
  EXPECT_EQ(cut.range(0, cut.share(0) - 1).end, huge);
}

TEST(StagedCut, CoversAnAllReduceOnceOverRoundsAndRanks) {
  for (const std::size_t count : kCounts) {
    for (const std::size_t piece : kPieces) {
      for (const int members : {2, 3, 64}) {
        const StagedCut cut({Kind::all_reduce, count, 2, members, 0}, piece);
        Cover cover(count);
        for (std::size_t round = 0; round < cut.rounds(); ++round) {
          for (int rank = 0; rank < members; ++rank) {
            const Range range = cut.piece_of(round, rank);
            EXPECT_LE(range.size() * 2, piece);
            cover.add(range);
          }
        }
        EXPECT_TRUE(cover.complete()) << count << " elements, pieces of " << piece << ", " << members << " members";
      }
    }
  }
}

TEST(StagedCut, CoversTheOtherKindsOnceAndFitsTheSlots) {
  for (const Kind kind : {Kind::reduce_scatter, Kind::all_gather, Kind::broadcast}) {
    for (const std::size_t count : kCounts) {
      const StagedCut cut({kind, count, 4, 3, 0}, 4'096);
      const std::size_t slot = kind == Kind::reduce_scatter ? 4'096 : 3 * 4'096;
      Cover cover(count);
      for (std::size_t round = 0; round < cut.rounds(); ++round) {
        EXPECT_LE(cut.piece(round).size() * 4, slot);
        cover.add(cut.piece(round));
      }
      EXPECT_TRUE(cover.complete());
    }
  }
}

TEST(Layout, KeepsSignalsOnLinesOfTheirOwnAndSlotsOnPages) {
  for (const int members : {1, 2, 3, 64}) {
    const Layout layout(members, 64, 1);
    EXPECT_EQ(layout.ranks % kLine, 0U);
    EXPECT_EQ(layout.descriptors % kLine, 0U);
    EXPECT_EQ(layout.shares % kLine, 0U);
    EXPECT_EQ(layout.small % kPage, 0U);
    EXPECT_EQ(layout.staging % kPage, 0U);
    EXPECT_EQ(layout.total % kPage, 0U);
  }
  EXPECT_EQ(Layout(1, 4'096, 4).total, Layout(1, 4'096, 4).small) << "a group of one has slots";
}

}  // namespace
}  // namespace sumpter::exchange
