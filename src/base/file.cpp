#include "base/file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <iterator>

#include "base/error.h"

namespace sumpter {
namespace {

// A descriptor that is closed on every way out.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

void write_all(int fd, std::string_view content, const std::filesystem::path& file) {
  while (!content.empty()) {
    const ssize_t written = ::write(fd, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) raise<SystemError>("{}: cannot write: {}", file.string(), errno_text());
    content.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace

std::string read_file(const std::filesystem::path& file) {
  if (std::filesystem::is_directory(file)) raise<SystemError>("{}: is a directory, not a file", file.string());
  std::ifstream stream(file, std::ios::binary);
  if (!stream) raise<SystemError>("{}: cannot open: {}", file.string(), errno_text());
  std::string content(std::istreambuf_iterator<char>(stream), {});
  if (stream.bad()) raise<SystemError>("{}: cannot read: {}", file.string(), errno_text());
  return content;
}

void write_file_atomically(const std::filesystem::path& file, std::string_view content) {
  write_file_atomically(file, std::span(&content, 1));
}

void write_file_atomically(const std::filesystem::path& file, std::span<const std::string_view> parts) {
  std::filesystem::path temporary = file;
  temporary += ".partial";
  try {
    const Descriptor out(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (out.get() < 0) raise<SystemError>("{}: cannot create: {}", temporary.string(), errno_text());
    for (const std::string_view part : parts) write_all(out.get(), part, temporary);
    if (::fsync(out.get()) != 0) raise<SystemError>("{}: cannot sync: {}", temporary.string(), errno_text());
    if (::rename(temporary.c_str(), file.c_str()) != 0)
      raise<SystemError>("{}: cannot rename to {}: {}", temporary.string(), file.string(), errno_text());
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  // The rename itself is durable once the directory is synced.
  const std::filesystem::path parent = file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
  const Descriptor directory(::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.get() >= 0) ::fsync(directory.get());
}

}  // namespace sumpter
