#include "step/arrays.h"

#include <fmt/format.h>

namespace sumpter {

ParameterArrays::ParameterArrays(std::span<const ParameterInfo> parameters, ElementType type)
    : parameters_(parameters), type_(type) {
  arrays_.reserve(parameters.size());
  for (const ParameterInfo& parameter : parameters)
    arrays_.push_back(std::make_unique<std::byte[]>(parameter.count * size_of(type)));
}

void* ParameterArrays::at(std::size_t parameter, std::size_t index) const {
  return arrays_.empty() ? nullptr : element(arrays_[parameter].get(), index, type_);
}

void ParameterArrays::add_to(std::vector<StateArray>& state, std::string_view prefix) const {
  for (std::size_t i = 0; i < arrays_.size(); ++i) {
    state.push_back({.name = fmt::format("{}{}", prefix, parameters_[i].name),
                     .type = type_,
                     .shape = parameters_[i].shape,
                     .data = arrays_[i].get()});
  }
}

}  // namespace sumpter
