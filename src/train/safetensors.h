// The header of a safetensors file: https://huggingface.co/docs/safetensors, "Format". Eight bytes hold its length,
// then comes JSON, then the arrays' bytes, without gaps.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "train/weights.h"

namespace sumpter {

// The format's own limit for the JSON.
inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;

struct SafetensorsEntry {
  std::string name;
  ElementType type = ElementType::f32;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0, end = 0;  // bytes of the data
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // in the file's order; names differ
  Metadata metadata;
};

// Throws DataError naming the file and the key for anything but a header whose arrays fill `data_bytes` exactly, each
// byte belonging to one array.
SafetensorsHeader parse_safetensors_header(std::string_view text, std::uint64_t data_bytes,
                                           const std::filesystem::path& file);

// Everything before the data, padded so that this begins at a multiple of 8, and the arrays in the order in which
// their bytes follow: wide elements first, so that each begins at a multiple of its size, as torch wants it; the header
// keeps the order given. Throws RequestError as write_safetensors does.
struct SafetensorsLayout {
  std::string head;
  std::vector<std::size_t> order;
};
SafetensorsLayout lay_out_safetensors(std::span<const NamedArray> arrays, const Metadata& metadata,
                                      const std::filesystem::path& file);

}  // namespace sumpter
