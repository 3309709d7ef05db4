// Arrays beside the parameters, one for each and of its size: optimizer state, what rounding lost, room for results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "step/chunks.h"
#include "sumpter/spec.h"

namespace sumpter {

// What a checkpoint keeps beside the parameters: "optimizer.first.conv1.weight", ... `data` stays where it is for as
// long as its owner lives.
struct StateArray {
  std::string name;
  ElementType type = ElementType::f32;
  std::vector<std::int64_t> shape;
  void* data = nullptr;
};

// Elements [begin, begin + count) of a parameter, or of an array beside it.
struct Stretch {
  std::size_t parameter = 0;
  std::size_t begin = 0;
  std::size_t count = 0;
};

// The address of element `index` of an array.
inline void* element(void* array, std::size_t index, ElementType type) {
  return static_cast<std::byte*>(array) + index * size_of(type);
}

class ParameterArrays {
 public:
  ParameterArrays() = default;  // none
  // Zeros. `parameters` outlives this.
  ParameterArrays(std::span<const ParameterInfo> parameters, ElementType type);

  bool empty() const { return arrays_.empty(); }
  // Null where there are none.
  void* at(std::size_t parameter, std::size_t index = 0) const;
  // Adds each array as `prefix` + the parameter's name.
  void add_to(std::vector<StateArray>& state, std::string_view prefix) const;

 private:
  std::span<const ParameterInfo> parameters_;
  ElementType type_ = ElementType::f32;
  std::vector<std::unique_ptr<std::byte[]>> arrays_;
};

}  // namespace sumpter
