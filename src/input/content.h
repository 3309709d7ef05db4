// The bytes of a file, and reading them through gzip where they are compressed.
#pragma once

#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace sumpter {

// The whole of a regular file. Throws DataError, naming it, where it is none or cannot be read.
std::vector<std::uint8_t> read_content(const std::filesystem::path& path);

// Reads content from its beginning, decompressing it where it begins as gzip data do (several members one after another
// are one content, as in gzip(1)). `content` must outlive the reader; `name` is the file that errors are about.
class ContentReader {
 public:
  ContentReader(std::span<const std::uint8_t> content, std::string name);
  ContentReader(const ContentReader&) = delete;
  ContentReader& operator=(const ContentReader&) = delete;
  ~ContentReader();

  // Fills `out`; returns less than its size only at the end. Throws DataError where the gzip data are damaged or end
  // too early; `position()` says how far it came.
  std::size_t read(std::span<std::uint8_t> out);

  std::size_t position() const { return position_; }  // bytes read until now, decompressed

 private:
  std::size_t inflate_some(std::span<std::uint8_t> out);

  std::span<const std::uint8_t> left_;  // of the content as it is stored
  const std::string name_;
  const bool gzip_;
  bool between_members_ = false;
  std::size_t position_ = 0;
  z_stream stream_{};
};

}  // namespace sumpter
