// How an operation is cut: pieces, shares, rounds, and the stretches of the parts that they cover. Pure functions of
// facts that all members have compared, so that all cut alike.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "exchange/control.h"
#include "sumpter/exchange.h"

namespace sumpter::exchange {

enum class Kind : std::uint8_t { all_reduce, reduce_scatter, all_gather, broadcast, barrier };

// Elements [begin, end).
struct Range {
  std::size_t begin = 0, end = 0;
  std::size_t size() const { return end - begin; }
};

// Calls visit(part, begin, size, offset) for each stretch of one part that `range` covers, where the parts are counted
// through as one array; `begin` counts from the part's start, `offset` from the range's.
template <typename Visit>
void for_each_run(std::span<const Part> parts, Range range, Visit&& visit) {
  std::size_t start = 0;  // of the part, counted through
  for (std::size_t part = 0; part < parts.size() && start < range.end; ++part) {
    const std::size_t end = start + parts[part].count;
    const std::size_t from = std::max(start, range.begin), to = std::min(end, range.end);
    if (from < to) visit(part, from - start, to - from, from - range.begin);
    start = end;
  }
}

// What is cut: the same on every member. `count` is the elements of an all_reduce or broadcast, of one member's input
// in an all_gather, of one member's output in a reduce_scatter.
struct Extent {
  Kind kind = Kind::barrier;
  std::size_t count = 0;
  std::size_t element = 1;  // bytes
  int members = 1;
  int root = 0;
};

// Elements of a piece: what `piece` bytes hold, less where that leaves members without work, never fewer than a line
// holds. `total` elements never make 2^22 pieces or more.
inline std::size_t piece_elements(std::size_t piece, std::size_t total, std::size_t element, int members) {
  const std::size_t line = kLine / element;
  const std::size_t fair = round_up((total + members - 1) / members, line);
  const std::size_t least = round_up((total >> 22) + 1, line);
  return std::max(std::min(piece / element, fair), least);
}

// In place: each member has a share, a list of pieces of which each is claimed by whoever is free.
class InPlaceCut {
 public:
  InPlaceCut() = default;
  InPlaceCut(const Extent& extent, std::size_t piece)
      : extent_(extent),
        length_(extent.kind == Kind::all_gather ? extent.count * extent.members : extent.count),
        // Only an all_reduce's pieces are dealt out; elsewhere each member has a whole list to itself.
        piece_(piece_elements(piece, length_, extent.element, extent.kind == Kind::all_reduce ? extent.members : 1)),
        pieces_((length_ + piece_ - 1) / piece_) {}

  // Pieces in a member's share.
  std::size_t share(int rank) const {
    if (extent_.kind == Kind::broadcast && rank == extent_.root) return 0;
    return extent_.kind == Kind::all_reduce ? first(rank + 1) - first(rank) : pieces_;
  }
  // What piece number `index` of the share covers: of the parts in an all_reduce, of the member's output elsewhere.
  Range range(int rank, std::size_t index) const {
    const std::size_t begin = ((extent_.kind == Kind::all_reduce ? first(rank) : 0) + index) * piece_;
    return {begin, std::min(begin + piece_, length_)};
  }

 private:
  std::size_t first(int rank) const { return pieces_ * rank / extent_.members; }

  Extent extent_;
  std::size_t length_ = 0, piece_ = 1, pieces_ = 0;
};

// Staged: rounds of one slot row per member. In an all_reduce round k covers pieces k*n ... k*n+n-1, of which member q
// sums k*n+q. In a reduce_scatter it covers piece k of every block. Copies use a row as one long slot.
class StagedCut {
 public:
  StagedCut() = default;
  StagedCut(const Extent& extent, std::size_t piece) : extent_(extent) {
    if (extent.kind == Kind::all_reduce) {
      piece_ = std::min(piece_elements(piece, extent.count, extent.element, extent.members), piece / extent.element);
    } else {
      piece_ = piece / extent.element;
      if (extent.kind != Kind::reduce_scatter) piece_ *= extent.members;
    }
    const std::size_t pieces = (extent.count + piece_ - 1) / piece_;
    const std::size_t at_once = extent.kind == Kind::all_reduce ? extent.members : 1;
    rounds_ = (pieces + at_once - 1) / at_once;
  }

  std::size_t rounds() const { return rounds_; }
  // An all_reduce's piece that `rank` sums in the round; empty past the end.
  Range piece_of(std::size_t round, int rank) const { return piece(round * extent_.members + rank); }
  // The elements of a block, input or buffer that another kind's round covers.
  Range piece(std::size_t index) const {
    return {std::min(index * piece_, extent_.count), std::min((index + 1) * piece_, extent_.count)};
  }

 private:
  Extent extent_;
  std::size_t piece_ = 1;
  std::size_t rounds_ = 0;
};

}  // namespace sumpter::exchange
