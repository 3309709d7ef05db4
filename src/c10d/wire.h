// Float32 sums that travel in a narrower format: rounded on their way in and, once summed in float32, on their way out.
// The error feedback of both directions is the caller's to keep.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "c10d/arena_tensors.h"
#include "sumpter/exchange.h"
#include "sumpter/spec.h"

namespace sumpter {

// One array (a parameter's gradient), in place. Blocks of i8 begin with it.
struct WirePart {
  float* values = nullptr;
  std::size_t count = 0;
  float* residual = nullptr;      // what rounding has lost on the way in so far; null: no feedback
  float* sum_residual = nullptr;  // and on the way out, the same on every rank
};

// An all_reduce (sum or average) of the parts, one after the other, in the format, which is not f32. Begins it and
// returns what finishes it: that writes the values, and counts in `overflows` what was finite and did not arrive as
// such. No value is written before; the residuals are, at once.
std::pair<Work, std::function<void()>> begin_in_wire(Exchange& exchange, ArenaTensors& arena,
                                                     std::vector<WirePart> parts, WireFormat format,
                                                     Reduction reduction,
                                                     std::shared_ptr<std::atomic<std::uint64_t>> overflows);

}  // namespace sumpter
