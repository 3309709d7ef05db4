// The steps of operations on memory: each function reads and writes arrays, and knows nothing of signals or members'
// states. All return the bytes that they read or copied.
#pragma once

#include <cstddef>
#include <span>

#include "exchange/control.h"
#include "exchange/operation.h"

namespace sumpter::exchange {

// False for a member without rows in a weighted mean: its values are not read.
inline bool takes_part(const Request& request) {
  return request.reduction != Reduction::weighted_mean || request.rows > 0;
}

// Between the parts and one contiguous array. Parts without data are passed over.
std::size_t copy_from_parts(std::span<const Part> parts, Range range, std::size_t element, std::byte* to);
std::size_t copy_to_parts(const std::byte* from, std::span<const Part> parts, Range range, std::size_t element);

// Small: everybody's input lies in the slots of the operation; this member's result is made from them.
std::size_t finish_small(const Control& control, const Operation& operation, int rank);
// A group of one: the operation is the identity.
std::size_t finish_alone(const Operation& operation);
// In place: piece `index` of the share of `owner`.
std::size_t do_in_place(const Operation& operation, int owner, std::size_t index);

// Staged, one round: what this member passes on to the others, ...
std::size_t copy_in(const Control& control, const Operation& operation, int rank, std::uint64_t round);
// ... its part of the summing; the sum goes back into the slots that were read, ...
std::size_t sum_round(const Control& control, const Operation& operation, int rank, std::uint64_t round);
// ... and what it takes from them.
std::size_t copy_out(const Control& control, const Operation& operation, int rank, std::uint64_t round);

}  // namespace sumpter::exchange
