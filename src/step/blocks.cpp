#include "step/blocks.h"

#include <cmath>
#include <numeric>

namespace sumpter {

GradientBlocks::GradientBlocks(std::span<const ParameterInfo> parameters) : parameters_(parameters), first_block_{0} {
  for (const ParameterInfo& parameter : parameters)
    first_block_.push_back(first_block_.back() + (parameter.count + kernels::kNormBlock - 1) / kernels::kNormBlock);
}

BlockRange GradientBlocks::share(int rank, int members) const {
  const auto number = static_cast<std::size_t>(rank), parts = static_cast<std::size_t>(members);
  return {size() * number / parts, size() * (number + 1) / parts};
}

void sum_squares(const GradientBlocks& blocks, BlockRange range, std::span<void* const> gradients, ElementType type,
                 std::span<double> squares) {
  blocks.for_each_stretch(range, [&](const Stretch& stretch, std::size_t block) {
    const void* const values = element(gradients[stretch.parameter], stretch.begin, type);
    if (type == ElementType::f64) {
      kernels::sum_of_squares(static_cast<const double*>(values), stretch.count, &squares[block]);
    } else {
      kernels::sum_of_squares(static_cast<const float*>(values), stretch.count, &squares[block]);
    }
  });
}

double norm_of(std::span<const double> squares) {
  return std::sqrt(std::accumulate(squares.begin(), squares.end(), 0.0));
}

double clip_scale(double norm, double clip_norm) {
  constexpr double kSmall = 1e-6;  // torch's: no division by 0
  return std::min(clip_norm / (norm + kSmall), 1.0);
}

}  // namespace sumpter
