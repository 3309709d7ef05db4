// What a process group of this backend can be given: sumpter.Options in Python.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "sumpter/exchange.h"
#include "sumpter/spec.h"

namespace sumpter {

inline constexpr const char* kBackendName = "sumpter";

// `timeout`, inherited, is the time limit of an operation. All but cores and trace are the same on every rank.
struct BackendOptions : c10d::Backend::Options {
  explicit BackendOptions(std::chrono::milliseconds operation_timeout = kBackendDefaultTimeout)
      : c10d::Backend::Options(kBackendName, operation_timeout) {}

  // Newer versions of torch have it in the base; older ones do not know it.
  virtual c10::intrusive_ptr<c10d::Backend::Options> clone() const {
    return c10::make_intrusive<BackendOptions>(*this);
  }

  WireFormat wire = WireFormat::f32;  // what float32 sums and averages are rounded to, on their way in and out
  std::size_t piece = GroupOptions{}.piece;
  int window = GroupOptions{}.window;
  std::optional<int> reducers;     // threads that only sum; unset: measured when the group is made
  std::vector<int> reducer_cores;  // empty: where the system puts them
  std::optional<std::chrono::milliseconds> own_timeout;      // in the place of the group's
  std::optional<std::chrono::milliseconds> connect_timeout;  // for the members to meet; unset: the group's
  std::string trace;                                         // file of the timeline, {rank} replaced; empty: none
};

}  // namespace sumpter
