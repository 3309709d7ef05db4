// The words by which an exchange is described: types of elements, reductions, wire formats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace sumpter {

enum class ElementType : std::uint8_t { f32, f64, bf16, f16, i8, u8, i16, i32, i64, boolean };

// How the members' values become one. `average` divides the sum by the number of members, once; `weighted_mean` adds
// each member's values times float32(its rows / all rows) (double for f64) and leaves out members without rows.
enum class Reduction : std::uint8_t {
  sum,
  average,
  weighted_mean,
  minimum,
  maximum,
  product,
  bitwise_and,
  bitwise_or,
  bitwise_xor
};

// How float32 numbers look on a link.
enum class WireFormat : std::uint8_t { f32, bf16, f16 };

// Bytes of one element; 1 for boolean.
std::size_t size_of(ElementType type);
std::size_t size_of(WireFormat format);

// The names used in messages, options and files: "f32", "weighted_mean", ...
std::string_view name_of(ElementType type);
std::string_view name_of(Reduction reduction);
std::string_view name_of(WireFormat format);

// True where the reduction is defined for the type: bitwise ones for integers and boolean only, average and
// weighted_mean not for boolean, weighted_mean for floating types only.
bool supports(ElementType type, Reduction reduction);

}  // namespace sumpter
