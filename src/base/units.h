// Numbers with units, as people write and read them: "64KiB", "1.5 MiB", "250 ms".
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace sumpter {

inline constexpr std::size_t kKiB = std::size_t{1} << 10;
inline constexpr std::size_t kMiB = std::size_t{1} << 20;
inline constexpr std::size_t kGiB = std::size_t{1} << 30;

// Bytes from "4096", "64KiB", "1.5MiB", "2GiB", "10MB" (KB, MB and GB are powers of 1000; case does not matter).
// Throws RequestError, naming `what`, when the text is not a size, is negative, or does not fit.
std::size_t parse_bytes(std::string_view text, std::string_view what);

// The shortest exact form in binary units where there is one ("64KiB", "1MiB", "1000B"), for plans and messages.
std::string format_bytes(std::size_t bytes);

// Three significant digits for people: "1.43 GiB", "12.0 MiB", "812 B".
std::string describe_bytes(double bytes);

// Three significant digits with the unit that fits: "812 ns", "1.43 ms", "3.20 s", "4 min 10 s".
std::string describe_seconds(double seconds);

}  // namespace sumpter
