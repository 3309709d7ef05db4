// Options that are one of a few names, and numbers that lie in a range: how they are read and refused.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"

namespace sumpter {

// The value of that name (name_of). Throws RequestError that lists the names there are.
template <typename Value>
Value parse_name(std::string_view text, std::string_view what, std::span<const Value> values) {
  std::string names;
  for (const Value value : values) {
    if (name_of(value) == text) return value;
    names += names.empty() ? "" : ", ";
    names += name_of(value);
  }
  raise<RequestError>("{}: '{}' is not one of {}", what, text, names);
}

inline void require_range(std::string_view key, std::int64_t value, std::int64_t low, std::int64_t high) {
  if (value < low || value > high)
    raise<RequestError>("{}: {} is out of range, which is {} to {}", key, value, low, high);
}

}  // namespace sumpter
