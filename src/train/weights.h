// The final parameters outside of the run: their hash, and a safetensors file. Free of torch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace sumpter {

struct NamedArray {
  std::string name;
  std::vector<std::int64_t> shape;
  std::span<const float> values;  // row-major, a view
};

// XXH3-128 of names, shapes and bytes in the order given, as 32 hexadecimal digits.
std::string digest(std::span<const NamedArray> arrays);

// Throws RequestError, naming the file, when write_safetensors is bound to fail: its directory does not exist or may
// not be written, or the name is a directory's.
void require_writable(const std::filesystem::path& file);

// float32 tensors as safetensors.torch.load_file reads them. The old file stays whole when anything fails. Throws
// SystemError naming the file.
void write_safetensors(std::span<const NamedArray> arrays, const std::filesystem::path& file);

}  // namespace sumpter
