// How the rows of a batch are divided among replicas.
#pragma once

#include <algorithm>
#include <cstddef>

namespace sumpter {

struct RowRange {
  std::size_t begin = 0;
  std::size_t rows = 0;

  bool operator==(const RowRange&) const = default;
};

// Part number `part` (below `parts`) of `rows` rows: contiguous parts, one after another, whose sizes differ by at most
// one, the larger ones first. Where there are fewer rows than parts the last parts are empty.
constexpr RowRange split_rows(std::size_t rows, std::size_t parts, std::size_t part) {
  const std::size_t each = rows / parts;
  const std::size_t larger = rows % parts;
  return {.begin = part * each + std::min(part, larger), .rows = each + (part < larger ? 1 : 0)};
}

}  // namespace sumpter
