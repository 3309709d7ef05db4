#include "base/units.h"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace sumpter {
namespace {

struct Unit {
  std::string_view name;
  double bytes;
};

constexpr std::array<Unit, 8> kUnits = {{{"", 1},
                                         {"b", 1},
                                         {"kib", 1024.0},
                                         {"mib", 1024.0 * 1024},
                                         {"gib", 1024.0 * 1024 * 1024},
                                         {"kb", 1e3},
                                         {"mb", 1e6},
                                         {"gb", 1e9}}};

std::string lower_without_spaces(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == ' ') continue;
    out.push_back(c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c);
  }
  return out;
}

// Three significant digits without an exponent.
std::string three_digits(double value) {
  const int decimals = value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f}", value, decimals);
}

}  // namespace

std::size_t parse_bytes(std::string_view text, std::string_view what) {
  const std::string word = lower_without_spaces(text);
  double number = 0;
  const char* end = word.data() + word.size();
  const auto [rest, error] = std::from_chars(word.data(), end, number, std::chars_format::fixed);
  const std::string_view unit_name(rest, static_cast<std::size_t>(end - rest));
  if (error == std::errc() && std::isfinite(number) && number >= 0) {
    for (const Unit& unit : kUnits) {
      if (unit.name != unit_name) continue;
      const double bytes = number * unit.bytes;
      // 2^53: beyond it a double no longer holds every number of bytes.
      if (bytes > 9007199254740992.0) raise<RequestError>("{}: '{}' is more bytes than any machine has", what, text);
      if (bytes != std::floor(bytes)) raise<RequestError>("{}: '{}' is not a whole number of bytes", what, text);
      return static_cast<std::size_t>(bytes);
    }
  }
  raise<RequestError>("{}: '{}' is not a size; write for example 65536, 64KiB or 1MiB", what, text);
}

std::string format_bytes(std::size_t bytes) {
  if (bytes != 0 && bytes % kGiB == 0) return fmt::format("{}GiB", bytes / kGiB);
  if (bytes != 0 && bytes % kMiB == 0) return fmt::format("{}MiB", bytes / kMiB);
  if (bytes != 0 && bytes % kKiB == 0) return fmt::format("{}KiB", bytes / kKiB);
  return fmt::format("{}B", bytes);
}

std::string describe_bytes(double bytes) {
  if (bytes < 1024) return fmt::format("{:.0f} B", bytes);
  if (bytes < 1024.0 * 1024) return three_digits(bytes / 1024) + " KiB";
  if (bytes < 1024.0 * 1024 * 1024) return three_digits(bytes / (1024.0 * 1024)) + " MiB";
  return three_digits(bytes / (1024.0 * 1024 * 1024)) + " GiB";
}

std::string describe_seconds(double seconds) {
  if (seconds < 1e-6) return three_digits(seconds * 1e9) + " ns";
  if (seconds < 1e-3) return three_digits(seconds * 1e6) + " us";
  if (seconds < 1) return three_digits(seconds * 1e3) + " ms";
  if (seconds < 100) return three_digits(seconds) + " s";
  const auto whole = static_cast<long long>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
}

}  // namespace sumpter
