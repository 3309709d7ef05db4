// The reference over a range of elements: the vector versions leave to it what does not fill a vector.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "kernels/kernels.h"
#include "kernels/optimizer.h"

namespace sumpter::kernels {

inline constexpr std::size_t kNormLanes = 8;
using NormLanes = std::array<double, kNormLanes>;

namespace reference {

// From any format to any other but i8; encode and decode are the cases where one of them is f32.
void convert(WireFormat from, const void* in, WireFormat to, void* out, std::size_t begin, std::size_t end);
// One block of i8, of at most kI8Block values.
void encode_i8_block(std::span<const float> values, void* block);
// All formats but i8, and any for a whole array.
std::uint64_t round_trip(WireFormat format, float* values, float* residual, std::size_t begin, std::size_t end);
// With an output of i8, `begin` begins a block.
void sum(const Sum& job, std::size_t begin, std::size_t end);
template <typename T>
void optimize(const OptimizerConstants<T>& constants, const OptimizerArrays<T>& arrays, std::size_t begin,
              std::size_t end);
// Adds the squares of values [begin, end) to the lanes that they belong to; values[0] begins a block.
template <typename T>
void add_squares(const T* values, std::size_t begin, std::size_t end, NormLanes& lanes);
double total_of(const NormLanes& lanes);

}  // namespace reference

}  // namespace sumpter::kernels
