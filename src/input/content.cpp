#include "input/content.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <limits>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace sumpter {
namespace {

bool begins_as_gzip(std::span<const std::uint8_t> content) {
  return content.size() >= 2 && content[0] == 0x1F && content[1] == 0x8B;
}

// zlib counts in 32 bits.
uInt zlib_size(std::size_t bytes) {
  return static_cast<uInt>(std::min<std::size_t>(bytes, std::numeric_limits<uInt>::max()));
}

}  // namespace

std::vector<std::uint8_t> read_content(const std::filesystem::path& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  // Opening a pipe would block, reading a directory fails without a reason.
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    raise<DataError>("{}: expected a regular file, found something else", path.string());
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) raise<DataError>("{}: cannot be opened: {}", path.string(), errno_text());
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (error) raise<DataError>("{}: cannot be read: {}", path.string(), error.message());
  std::vector<std::uint8_t> bytes(size);
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size));
  if (static_cast<std::uintmax_t>(file.gcount()) != size) {
    raise<DataError>("{}: only {} of its {} bytes could be read", path.string(), file.gcount(), size);
  }
  return bytes;
}

ContentReader::ContentReader(std::span<const std::uint8_t> content, std::string name)
    : left_(content), name_(std::move(name)), gzip_(begins_as_gzip(content)) {
  constexpr int kGzipOnly = 16;
  if (gzip_ && inflateInit2(&stream_, MAX_WBITS + kGzipOnly) != Z_OK) {
    raise<SystemError>("{}: no memory to decompress it", name_);
  }
}

ContentReader::~ContentReader() {
  if (gzip_) inflateEnd(&stream_);
}

std::size_t ContentReader::read(std::span<std::uint8_t> out) {
  std::size_t done = 0;
  if (gzip_) {
    while (done < out.size()) {
      const std::size_t got = inflate_some(out.subspan(done));
      if (got == 0) break;
      done += got;
    }
    return done;
  }
  done = std::min(out.size(), left_.size());
  if (done > 0) std::memcpy(out.data(), left_.data(), done);
  left_ = left_.subspan(done);
  position_ += done;
  return done;
}

// At least one byte, or none at the end of the last member.
std::size_t ContentReader::inflate_some(std::span<std::uint8_t> out) {
  while (true) {
    if (between_members_) {
      if (left_.empty()) return 0;
      if (inflateReset(&stream_) != Z_OK) raise<SystemError>("{}: zlib could not begin anew", name_);
      between_members_ = false;
    }
    const uInt offered = zlib_size(left_.size());
    const uInt room = zlib_size(out.size());
    stream_.next_in = const_cast<Bytef*>(left_.data());  // zlib reads it only
    stream_.avail_in = offered;
    stream_.next_out = out.data();
    stream_.avail_out = room;
    const int result = inflate(&stream_, Z_NO_FLUSH);
    left_ = left_.subspan(offered - stream_.avail_in);
    const std::size_t got = room - stream_.avail_out;
    position_ += got;
    between_members_ = result == Z_STREAM_END;
    if (got > 0) return got;
    if (result == Z_BUF_ERROR || (result == Z_OK && left_.empty())) {
      raise<DataError>("{}: its gzip data end too early, after {} decompressed bytes; copy or download it again", name_,
                       position_);
    }
    if (result == Z_MEM_ERROR) raise<SystemError>("{}: no memory to decompress it", name_);
    if (result != Z_OK && result != Z_STREAM_END) {
      raise<DataError>("{}: its gzip data are damaged after {} decompressed bytes ({}); copy or download it again",
                       name_, position_, stream_.msg == nullptr ? "no reason given" : stream_.msg);
    }
  }
}

}  // namespace sumpter
