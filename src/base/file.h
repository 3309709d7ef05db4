// Files: read whole or in parts, written so that either the old or the new content is there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace sumpter {

// A descriptor that is closed on every way out.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FileDescriptor();
  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// Throws SystemError naming the file.
std::string read_file(const std::filesystem::path& file);

// A file that is read part by part, from its beginning.
class InputFile {
 public:
  // Throws SystemError naming the file, which must be a regular one.
  explicit InputFile(const std::filesystem::path& file);
  // Bytes, when it was opened.
  std::uint64_t size() const { return size_; }
  // Fills `out` with the next bytes. Throws SystemError, also when the file has ended before.
  void read(std::span<std::byte> out);

 private:
  std::filesystem::path file_;
  FileDescriptor descriptor_;
  std::uint64_t size_ = 0;
};

// Writes to a temporary file in the same directory, syncs it and renames it over `file`; the old file stays whole when
// anything fails. Throws SystemError naming the file, and the bytes that it needs when there is no room for them.
void write_file_atomically(const std::filesystem::path& file, std::string_view content);
// The same for a content that lies in several parts.
void write_file_atomically(const std::filesystem::path& file, std::span<const std::string_view> parts);

// Blocks until what was made, renamed or removed in the directory is on the disk. Throws SystemError naming it.
void sync_directory(const std::filesystem::path& directory);

// The directory that holds the file: "." for a name alone.
std::filesystem::path parent_of(const std::filesystem::path& file);

}  // namespace sumpter
