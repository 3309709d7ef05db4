// Makes small CIFAR files for the tests.
#pragma once

#include "idx_files.h"
#include "input/cifar.h"

namespace sumpter {

// Byte b of the image of item i.
inline std::uint8_t cifar_byte(std::size_t item, std::size_t byte) {
  return static_cast<std::uint8_t>(item * 31 + byte + byte / 256);
}

// Items first to first + items - 1. Item i has the label i modulo the classes, and coarse label i modulo 20.
inline Bytes cifar_rows(CifarKind kind, std::size_t first, std::size_t items) {
  Bytes bytes;
  for (std::size_t item = first; item < first + items; ++item) {
    if (kind == CifarKind::cifar100) bytes.push_back(static_cast<std::uint8_t>(item % 20));
    bytes.push_back(static_cast<std::uint8_t>(item % (kind == CifarKind::cifar10 ? 10 : 100)));
    for (std::size_t byte = 0; byte < kCifarImageBytes; ++byte) bytes.push_back(cifar_byte(item, byte));
  }
  return bytes;
}

}  // namespace sumpter
