// Faults on their way to Python: what the exchange throws becomes torch's DistBackendError, in one line.
#pragma once

#include <c10/util/Exception.h>

#include <exception>
#include <string>
#include <utility>

namespace sumpter {

// torch::distributed's error of a backend, without the C++ backtrace that torch would add to its text.
c10::DistBackendError backend_error(const std::string& text);

// The exception that Python is to see: Sumpter's errors of a group and of the system as DistBackendError, wrong
// requests as ValueError, torch's own as they are.
std::exception_ptr for_torch(const std::exception_ptr& error);

// Calls it and rethrows what it throws as for_torch has it.
template <typename Function>
decltype(auto) with_torch_errors(Function&& function) {
  try {
    return std::forward<Function>(function)();
  } catch (...) {
    std::rethrow_exception(for_torch(std::current_exception()));
  }
}

}  // namespace sumpter
