// Makes IDX files, whole and damaged, for the tests.
#pragma once

#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/temporary_directory.h"

namespace sumpter {

using Bytes = std::vector<std::uint8_t>;

inline void append_number(Bytes& bytes, std::uint32_t number) {
  for (const int shift : {24, 16, 8, 0}) bytes.push_back(static_cast<std::uint8_t>(number >> shift));
}

// Image i's pixel p is (10 * i + p) modulo 256.
inline Bytes idx_images(std::uint32_t items, std::uint32_t height, std::uint32_t width) {
  Bytes bytes;
  for (const std::uint32_t number : {std::uint32_t{0x803}, items, height, width}) append_number(bytes, number);
  for (std::uint32_t item = 0; item < items; ++item) {
    for (std::uint32_t pixel = 0; pixel < height * width; ++pixel) {
      bytes.push_back(static_cast<std::uint8_t>(10 * item + pixel));
    }
  }
  return bytes;
}

inline Bytes idx_labels(std::span<const std::uint8_t> labels) {
  Bytes bytes;
  append_number(bytes, 0x801);
  append_number(bytes, static_cast<std::uint32_t>(labels.size()));
  bytes.insert(bytes.end(), labels.begin(), labels.end());
  return bytes;
}

// Label i is i modulo 10.
inline Bytes idx_labels(std::uint32_t items) {
  Bytes labels(items);
  for (std::uint32_t item = 0; item < items; ++item) labels[item] = static_cast<std::uint8_t>(item % 10);
  return idx_labels(labels);
}

inline Bytes gzipped(const Bytes& plain) {
  z_stream stream{};
  if (deflateInit2(&stream, 9, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
    throw std::runtime_error("deflateInit2 failed");
  }
  Bytes out(deflateBound(&stream, plain.size()));
  stream.next_in = const_cast<Bytef*>(plain.data());
  stream.avail_in = static_cast<uInt>(plain.size());
  stream.next_out = out.data();
  stream.avail_out = static_cast<uInt>(out.size());
  const int result = deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  if (result != Z_STREAM_END) throw std::runtime_error("deflate did not finish");
  return out;
}

// A directory of a test's own that files are written to.
class TemporaryDirectory : public tests::TemporaryDirectory {
 public:
  std::filesystem::path write(const std::string& name, const Bytes& bytes) const {
    const std::filesystem::path file = path() / name;
    std::ofstream stream(file, std::ios::binary);
    stream.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    if (!stream.flush()) throw std::runtime_error("cannot write " + file.string());
    return file;
  }
};

}  // namespace sumpter
