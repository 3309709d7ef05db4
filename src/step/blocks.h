// The gradients of all parameters as one row of blocks: what the second pass over them is cut into, and the fixed order
// in which their norm is summed, whoever sums it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "kernels/kernels.h"
#include "step/arrays.h"
#include "sumpter/spec.h"

namespace sumpter {

struct BlockRange {
  std::size_t begin = 0, end = 0;
};

// Blocks of kernels::kNormBlock elements that begin anew at each parameter, numbered through in the parameters' order.
class GradientBlocks {
 public:
  explicit GradientBlocks(std::span<const ParameterInfo> parameters);

  std::size_t size() const { return first_block_.back(); }
  BlockRange all() const { return {0, size()}; }
  // The blocks of one of several replicas, contiguous; numbers differ by at most one.
  BlockRange share(int rank, int members) const;

  // Calls visit(stretch, block) for each parameter of which the range holds blocks; `block` is the number of the
  // stretch's first one.
  template <typename Visit>
  void for_each_stretch(BlockRange range, Visit&& visit) const {
    for (std::size_t parameter = 0; parameter < parameters_.size(); ++parameter) {
      const std::size_t first = first_block_[parameter];
      const std::size_t from = std::max(first, range.begin), to = std::min(first_block_[parameter + 1], range.end);
      if (from >= to) continue;
      const std::size_t begin = (from - first) * kernels::kNormBlock;
      const std::size_t end = std::min((to - first) * kernels::kNormBlock, parameters_[parameter].count);
      visit(Stretch{.parameter = parameter, .begin = begin, .count = end - begin}, from);
    }
  }

 private:
  std::span<const ParameterInfo> parameters_;
  std::vector<std::size_t> first_block_;  // by parameter, and the number of all blocks
};

// squares[b] = the sum of the squares of block b, for the blocks of the range. `gradients` by parameter, f32 or f64.
void sum_squares(const GradientBlocks& blocks, BlockRange range, std::span<void* const> gradients, ElementType type,
                 std::span<double> squares);

// The 2-norm, from the squares of all blocks, added in order.
double norm_of(std::span<const double> squares);

// torch.nn.utils.clip_grad_norm_: what the gradients are multiplied by so that their norm is at most `clip_norm`. NaN
// where the norm is.
double clip_scale(double norm, double clip_norm);

}  // namespace sumpter
