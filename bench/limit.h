// What memory allows: a loop that reads every input once and writes every output once, and nothing else. Sums are
// compared with it.
#pragma once

#include <cstddef>
#include <span>

namespace sumpter::bench {

// outputs[*][i] = inputs[0][i] + inputs[1][i] + ... for i in [begin, end), in the widest vectors of this processor
// (left to itself, a compiler does not vectorise a loop that writes several arrays). 1 to 16 inputs, and one output or
// as many as inputs, which they may be; else RequestError.
void sum_limit(std::span<float* const> inputs, std::span<float* const> outputs, std::size_t begin, std::size_t end);

}  // namespace sumpter::bench
