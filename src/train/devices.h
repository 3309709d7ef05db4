// Where replicas compute, as people write it.
#pragma once

#include <string_view>

namespace sumpter {

// Replicas from "cpu:4". Throws RequestError that names `what` for other devices, and numbers outside 1 to
// kMaxReplicas.
int parse_devices(std::string_view text, std::string_view what);

}  // namespace sumpter
