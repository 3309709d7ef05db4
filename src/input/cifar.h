// CIFAR-10 and CIFAR-100 in their binary version (Krizhevsky, "Learning Multiple Layers of Features from Tiny Images",
// 2009), held in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "sumpter/input.h"

namespace sumpter {

// cifar10: rows of a label and 3072 bytes of image. cifar100: of a coarse label (20 classes, not used), a fine one
// (100) and the image. Images are 3 x 32 x 32: red, green, blue.
enum class CifarKind : std::uint8_t { cifar10, cifar100 };

inline constexpr std::size_t kCifarImageBytes = std::size_t{3} * 32 * 32;
constexpr std::size_t cifar_row_bytes(CifarKind kind) {
  return (kind == CifarKind::cifar10 ? 1 : 2) + kCifarImageBytes;
}

// The number of rows of a file. Throws DataError that names `name` (the file) and the item, counted within the file,
// where there are none, the last one is cut off or a label is out of range.
std::size_t check_cifar(std::span<const std::uint8_t> content, const std::string& name, CifarKind kind);

struct CifarDirectory {
  std::filesystem::path path;
  CifarKind kind = CifarKind::cifar10;
};

// The directory itself where it has data_batch_1.bin (CIFAR-10) or train.bin (CIFAR-100), or its cifar-10-batches-bin
// or cifar-100-binary, as the archives unpack to.
std::optional<CifarDirectory> find_cifar(const std::filesystem::path& directory);

// data_batch_1.bin to data_batch_5.bin and, where it is, test_batch.bin; or train.bin and, where it is, test.bin.
// Throws DataError where a training file is missing, and as check_cifar.
DatasetPair open_cifar(const CifarDirectory& directory);

}  // namespace sumpter
