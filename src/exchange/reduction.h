// One call of the summing kernel, its inputs and outputs gathered without allocating.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>

#include "exchange/operation.h"
#include "kernels/kernels.h"

namespace sumpter::exchange {

class Summing {
 public:
  Summing(const Request& request, const Terms& terms) : request_(request), terms_(terms) {}

  // In the order of terms.ranks.
  void input(const void* data) { inputs_[input_count_++] = data; }
  // Null is passed over.
  void output(void* data) {
    if (data != nullptr) outputs_[output_count_++] = data;
  }
  // Sums `count` elements and is ready for the next call. Returns the bytes read. Without terms (no member has rows)
  // the sum is zero.
  std::size_t run(std::size_t count) {
    const std::size_t bytes = count * request_.element();
    const std::size_t inputs = std::exchange(input_count_, 0), outputs = std::exchange(output_count_, 0);
    if (outputs == 0) return 0;
    if (inputs == 0) {
      for (std::size_t i = 0; i < outputs; ++i) std::memset(outputs_[i], 0, bytes);
      return 0;
    }
    kernels::reduce({.type = request_.type,
                     .reduction = request_.reduction,
                     .inputs = {inputs_.data(), inputs},
                     .scales = terms_.scales_or_none(),
                     .members = static_cast<std::size_t>(terms_.members),
                     .outputs = {outputs_.data(), outputs},
                     .count = count});
    return inputs * bytes;
  }

 private:
  const Request& request_;
  const Terms& terms_;
  std::array<const void*, kMaxMembers> inputs_;
  std::array<void*, kMaxMembers> outputs_;
  std::size_t input_count_ = 0, output_count_ = 0;
};

inline std::byte* address(const Part& part, std::size_t elements, std::size_t element) {
  return part.data == nullptr ? nullptr : static_cast<std::byte*>(part.data) + elements * element;
}

}  // namespace sumpter::exchange
