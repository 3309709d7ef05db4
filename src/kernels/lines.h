// Arrays and the caches: where an array meets lines (vectors that cross from one to the next cost twice), and when it
// is better to go past them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace sumpter::kernels {

inline constexpr std::size_t kLineBytes = 64;  // no vector is longer

// From so many bytes on, a result that lies elsewhere than its inputs is stored past the caches, which could not keep
// it: measured to take a fifth to a half less time, because the memory is not read before it is overwritten.
inline constexpr std::size_t kStreamedBytes = std::size_t{16} << 20;

// The first element that begins a line, or nothing where no element does; the array may end before it.
inline std::optional<std::size_t> first_on_line(const void* array, std::size_t element_bytes) {
  const std::size_t bytes = -reinterpret_cast<std::uintptr_t>(array) % kLineBytes;
  if (bytes % element_bytes != 0) return std::nullopt;
  return bytes / element_bytes;
}

}  // namespace sumpter::kernels
