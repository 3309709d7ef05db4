#include "step/host_parameters.h"

#include <cstring>

#include "kernels/kernels.h"

namespace sumpter {

HostParameters::HostParameters(std::span<const ParameterInfo> parameters, ElementType type, WireFormat wire,
                               std::span<void* const> addresses)
    : parameters_(parameters), type_(type), wire_(wire), seen_(addresses.begin(), addresses.end()) {
  if (wire == WireFormat::f32) return;
  copies_ = ParameterArrays(parameters, type);
  for (std::size_t i = 0; i < parameters.size(); ++i)
    std::memcpy(copies_.at(i), seen_[i], parameters[i].count * size_of(type));
  publish_all();
}

void* HostParameters::value(std::size_t parameter, std::size_t index) const {
  return copies_.empty() ? element(seen_[parameter], index, type_) : copies_.at(parameter, index);
}

void HostParameters::publish(const Stretch& stretch) const {
  if (copies_.empty()) return;
  auto* const seen = static_cast<float*>(seen_[stretch.parameter]) + stretch.begin;
  std::memcpy(seen, copies_.at(stretch.parameter, stretch.begin), stretch.count * sizeof(float));
  kernels::round_trip(wire_, seen, nullptr, stretch.count);
}

void HostParameters::publish_all() const {
  for (std::size_t i = 0; i < seen_.size(); ++i) publish({.parameter = i, .begin = 0, .count = parameters_[i].count});
}

}  // namespace sumpter
