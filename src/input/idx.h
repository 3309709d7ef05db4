// Data sets in the files that MNIST made common: IDX, plain or gzip (told apart by their content), held in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "sumpter/input.h"

namespace sumpter {

// An IDX array of unsigned bytes: `items` items of `item_bytes` bytes, one after another.
struct IdxArray {
  std::vector<std::size_t> sides;  // of one item: {height, width} of an image, empty for a label
  std::size_t items = 0;
  std::size_t item_bytes = 0;
  std::vector<std::uint8_t> values;
};

// Decodes the content of a file: big-endian magic number 0x000008dd (08: unsigned bytes, dd: dimensions), then dd sizes
// of 32 bits, then the values; `dimensions` is the dd wanted. Memory grows with what is really there, never with what
// the header promises. Throws DataError that names `name` (the file), what was expected, what was found, and the item.
IdxArray parse_idx(std::span<const std::uint8_t> content, const std::string& name, int dimensions);

struct IdxFiles {
  std::filesystem::path images;
  std::filesystem::path labels;
  int classes = 0;  // labels are below it; 0: the largest label plus one
};

// One-channel images of any size. Throws DataError where a file cannot be read, is damaged, has no items, where the
// counts differ or a label is not below `classes`.
std::shared_ptr<const Dataset> open_idx(const IdxFiles& files);

// True where the directory has a train-images-idx3-ubyte, plain or with .gz.
bool is_idx_directory(const std::filesystem::path& directory);

// train-images-idx3-ubyte, train-labels-idx1-ubyte and, where they are, t10k-images-... and t10k-labels-..., each plain
// or with .gz (plain is preferred). Where `classes` is 0, both sets have as many as the largest label of both tells.
// Throws DataError as open_idx, and where only one file of a pair is there.
DatasetPair open_idx_directory(const std::filesystem::path& directory, int classes = 0);

// The path, or the path with .gz, whichever exists (the path itself first); empty where neither does.
std::filesystem::path plain_or_gzip(const std::filesystem::path& path);

}  // namespace sumpter
