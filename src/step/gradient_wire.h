// What a gradient loses on a link in one direction: it is rounded to the wire format, and with error feedback the loss
// is kept and added to what travels next.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "step/arrays.h"
#include "sumpter/spec.h"

namespace sumpter {

// The residuals are in units of what this wire carried: on the way up the mean over a replica's own rows, before the
// exchange weighs it by float32(its rows / all rows). Where a replica's share of the rows changes between two steps,
// what it still owed counts with the share of the later one.
class GradientWire {
 public:
  GradientWire() = default;  // loses nothing
  // `prefix` names the residuals in a checkpoint: "feedback.up.". `parameters` outlives this.
  GradientWire(std::span<const ParameterInfo> parameters, WireFormat format, bool error_feedback, std::string prefix);

  bool lossy() const { return format_ != WireFormat::f32; }
  // Makes a whole gradient (float32) what arrives of it. Blocks of i8 begin anew at each parameter.
  void round(std::size_t parameter, void* gradient);
  // Finite values that did not arrive as such, so far.
  std::uint64_t overflows() const { return overflows_; }
  void add_to(std::vector<StateArray>& state) const { residuals_.add_to(state, prefix_); }

 private:
  std::span<const ParameterInfo> parameters_;
  WireFormat format_ = WireFormat::f32;
  std::string prefix_;
  ParameterArrays residuals_;
  std::uint64_t overflows_ = 0;
};

}  // namespace sumpter
