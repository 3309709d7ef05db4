// With update=host: the one set of parameters that all replicas read, and beside it, where they travel rounded
// (parameter_wire), the true float32 values that the optimizer updates.
#pragma once

#include <span>
#include <vector>

#include "step/arrays.h"
#include "sumpter/spec.h"

namespace sumpter {

class HostParameters {
 public:
  HostParameters() = default;  // none: update=device
  // `addresses`: what replicas read, one for each parameter. With a wire other than f32 (type f32 only) their values
  // are copied, then rounded. `parameters` outlives this.
  HostParameters(std::span<const ParameterInfo> parameters, ElementType type, WireFormat wire,
                 std::span<void* const> addresses);

  // The true value.
  void* value(std::size_t parameter, std::size_t index = 0) const;
  // Replicas see the true values, as they arrive by the wire. Any thread, several at a time for stretches that do not
  // overlap; with i8 a stretch begins on a block and ends on one, or at the parameter's end.
  void publish(const Stretch& stretch) const;
  void publish_all() const;

 private:
  std::span<const ParameterInfo> parameters_;
  ElementType type_ = ElementType::f32;
  WireFormat wire_ = WireFormat::f32;
  std::vector<void*> seen_;  // what replicas read
  ParameterArrays copies_;   // none where replicas read the true values
};

}  // namespace sumpter
