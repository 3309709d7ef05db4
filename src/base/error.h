// Throwing with a formatted message, and the text of errno.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "sumpter/error.h"

namespace sumpter {

// Throws E with the formatted message.
template <typename E, typename... Args>
[[noreturn]] void raise(fmt::format_string<Args...> format, Args&&... args) {
  throw E(fmt::format(format, std::forward<Args>(args)...));
}

// "No such file or directory" for ENOENT; thread-safe. The default is the calling thread's errno.
std::string errno_text();
std::string errno_text(int error);

// The message of any exception, for logs and for passing a fault on to other members.
std::string describe(const std::exception_ptr& error);

}  // namespace sumpter
