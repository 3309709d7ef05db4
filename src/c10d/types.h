// torch's element types and reductions in the exchange's words.
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "sumpter/spec.h"

namespace sumpter {

// None where the exchange has no arithmetic for the type; its bytes can be moved all the same.
std::optional<ElementType> element_type(c10::ScalarType type);

// What is done to each element; complex ones are pairs of real ones, whose sums and averages are theirs. Throws
// ValueError, naming operation, reduction and type, where torch's reduction is not defined for the type.
struct Arithmetic {
  ElementType type;
  Reduction reduction;
};
Arithmetic arithmetic(const char* operation, const c10d::ReduceOp& op, c10::ScalarType type);

// "SUM", "AVG", ...
std::string name_of(const c10d::ReduceOp& op);

}  // namespace sumpter
