#include "step/gradient_wire.h"

#include <utility>

#include "kernels/kernels.h"

namespace sumpter {

GradientWire::GradientWire(std::span<const ParameterInfo> parameters, WireFormat format, bool error_feedback,
                           std::string prefix)
    : parameters_(parameters), format_(format), prefix_(std::move(prefix)) {
  if (lossy() && error_feedback) residuals_ = ParameterArrays(parameters, ElementType::f32);
}

void GradientWire::round(std::size_t parameter, void* gradient) {
  if (!lossy()) return;
  overflows_ += kernels::round_trip(format_, static_cast<float*>(gradient),
                                    static_cast<float*>(residuals_.at(parameter)), parameters_[parameter].count);
}

}  // namespace sumpter
