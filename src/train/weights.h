// Arrays with names, outside of a run: their hash, and safetensors files of them. Free of torch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sumpter/spec.h"

namespace sumpter {

struct NamedArray {
  std::string name;
  ElementType type = ElementType::f32;
  std::vector<std::int64_t> shape;   // {}: one element
  std::span<const std::byte> bytes;  // row-major, little-endian, a view
};

// Plain bytes as an array of u8.
NamedArray bytes_array(std::string name, std::span<const std::byte> bytes);

// XXH3-128 of names, shapes and bytes in the order given, and of types other than f32, as 32 hexadecimal digits.
std::string digest(std::span<const NamedArray> arrays);

// Throws RequestError, naming the file, when write_safetensors is bound to fail: its directory does not exist or may
// not be written, or the name is a directory's.
void require_writable(const std::filesystem::path& file);

// What a safetensors file says of itself: any texts, UTF-8.
using Metadata = std::map<std::string, std::string>;

// The arrays as safetensors.torch.load_file reads them. The old file stays whole when anything fails. Throws
// SystemError naming the file, and RequestError for arrays that no file can hold: a name twice or not UTF-8, bytes
// that are not the shape's.
void write_safetensors(std::span<const NamedArray> arrays, const std::filesystem::path& file,
                       const Metadata& metadata = {});

// A safetensors file in memory. May be moved; the arrays stay where they are.
class SafetensorsFile {
 public:
  // Never trusts the file: throws DataError naming file, key, expected and found, and SystemError when it cannot be
  // read. The bytes are read once, to where the arrays then are.
  static SafetensorsFile read(const std::filesystem::path& file);

  // In the order of the header, in which write_safetensors was given them. Their bytes may begin at any address.
  const std::vector<NamedArray>& arrays() const { return arrays_; }
  // Null where there is none of that name.
  const NamedArray* find(std::string_view name) const;
  const Metadata& metadata() const { return metadata_; }
  // Of arrays().
  std::string digest() const { return sumpter::digest(arrays_); }

 private:
  SafetensorsFile() = default;

  std::unique_ptr<std::byte[]> data_;
  std::vector<NamedArray> arrays_;
  std::map<std::string_view, std::size_t> index_;  // into arrays_
  Metadata metadata_;
};

}  // namespace sumpter
