// The program's log: plain lines on standard error, so that results on standard output stay clean.
#pragma once

#include <fmt/format.h>

#include <string_view>
#include <utility>

namespace sumpter::log {

enum class Level { debug, info, warning, error };

// Lines below the level are dropped. The command sets it from --verbose and --quiet; the default is info.
void set_level(Level level);

void write(Level level, std::string_view line);

template <typename... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::debug, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::info, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void warning(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::warning, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::error, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace sumpter::log
