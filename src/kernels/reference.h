// The reference over a range of elements: the vector versions leave to it what does not fill a vector.
#pragma once

#include <cstddef>

#include "kernels/kernels.h"

namespace sumpter::kernels::reference {

// From any format to any other; encode and decode are the cases where one of them is f32.
void convert(WireFormat from, const void* in, WireFormat to, void* out, std::size_t begin, std::size_t end);
void sum(const Sum& job, std::size_t begin, std::size_t end);
void sgd(const Sgd& options, const float* gradient, float* parameter, float* momentum_buffer, std::size_t begin,
         std::size_t end);

}  // namespace sumpter::kernels::reference
