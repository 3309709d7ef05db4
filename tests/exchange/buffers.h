// Arrays for tests of the exchange, lying where an all-reduce of them is done in the way that the test wants.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <ostream>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "sumpter/exchange.h"

namespace sumpter::tests {

// How members that are processes do an all-reduce: in the arena, through slots, by one signal.
enum class Way { in_place, staged, small };
inline const char* name_of(Way way) {
  return way == Way::in_place ? "in_place" : way == Way::staged ? "staged" : "small";
}
inline std::ostream& operator<<(std::ostream& out, Way way) { return out << name_of(way); }

// float32, all of one value to begin with.
class Buffer {
 public:
  Buffer(Exchange& exchange, Way way, std::size_t count, float value = 0.0F) : count_(count) {
    if (way == Way::in_place) {
      shared_ = exchange.allocate(count * sizeof(float));
    } else {
      own_.resize(count);
    }
    fill(value);
  }
  std::span<float> values() {
    return {shared_.data() != nullptr ? static_cast<float*>(shared_.data()) : own_.data(), count_};
  }
  Part part() { return {values().data(), count_}; }
  void fill(float value) { std::ranges::fill(values(), value); }
  bool all(float value) {
    return std::ranges::all_of(values(), [value](float x) { return x == value; });
  }
  bool all_nan() {
    return std::ranges::all_of(values(), [](float x) { return std::isnan(x); });
  }

 private:
  std::size_t count_;
  SharedMemory shared_;
  std::vector<float> own_;
};

// A check inside a member, whose failure becomes the member's outcome.
inline void require(bool holds, const std::string& what) {
  if (!holds) {
    throw std::logic_error("the test found: " + what);
  }
}

}  // namespace sumpter::tests
