#include "train/devices.h"

#include <charconv>

#include "base/error.h"
#include "spec/plan.h"

namespace sumpter {

int parse_devices(std::string_view text, std::string_view what) {
  constexpr std::string_view kCpu = "cpu:";
  if (!text.starts_with(kCpu))
    raise<RequestError>("{}: '{}' is not available; this version trains on cpu:N, with N from 1 to {}", what, text,
                        kMaxReplicas);
  int replicas = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + kCpu.size(), end, replicas);
  if (error != std::errc{} || stop != end || replicas < 1 || replicas > kMaxReplicas)
    raise<RequestError>("{}: '{}' is not cpu:N with N from 1 to {}", what, text, kMaxReplicas);
  return replicas;
}

}  // namespace sumpter
