// Options whose value is a number: what is not one, or is out of range, is refused in one line that names the option,
// what was given and what is possible.
#pragma once

#include <CLI/App.hpp>
#include <charconv>
#include <functional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace sumpter::cli {

template <typename Number>
struct Range {
  Number low, high;
};

// Throws RequestError.
template <typename Number>
Number parse_number(std::string_view text, std::string_view option, const Range<Number>& range) {
  Number number{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc{} || stop != end || !(number >= range.low && number <= range.high))
    raise<RequestError>("{}: '{}' is not a number from {} to {}", option, text, range.low, range.high);
  return number;
}

// Declares `--name N`; `target` (a Number or an optional of it) is set when the option is given.
template <typename Number, typename Target>
CLI::Option* add_number(CLI::App& app, const std::string& option, Target& target, const Range<Number>& range,
                        const std::string& description) {
  const auto set = [option, range, &target](const std::string& text) {
    target = parse_number<Number>(text, option, range);
  };
  return app.add_option_function<std::string>(option, set, description)->type_name("N");
}

}  // namespace sumpter::cli
