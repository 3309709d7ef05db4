#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <numeric>

#include "base/error.h"

namespace sumpter {
namespace {

void write_all(int fd, std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = ::write(fd, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw std::system_error(errno, std::generic_category());
    content.remove_prefix(static_cast<std::size_t>(written));
  }
}

// Creates the file with these parts, on the disk when this returns.
void write_synced(const std::filesystem::path& file, std::span<const std::string_view> parts) {
  const FileDescriptor out(::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!out.is_open()) raise<SystemError>("{}: cannot create: {}", file.string(), errno_text());
  try {
    for (const std::string_view part : parts) write_all(out.get(), part);
    if (::fsync(out.get()) != 0) throw std::system_error(errno, std::generic_category());
  } catch (const std::system_error& error) {
    const auto add = [](std::size_t sum, std::string_view part) { return sum + part.size(); };
    raise<SystemError>("{}: cannot write its {} bytes: {}", file.string(),
                       std::accumulate(parts.begin(), parts.end(), std::size_t{0}, add),
                       errno_text(error.code().value()));
  }
}

}  // namespace

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) ::close(fd_);
}

std::string read_file(const std::filesystem::path& file) {
  if (std::filesystem::is_directory(file)) raise<SystemError>("{}: is a directory, not a file", file.string());
  std::ifstream stream(file, std::ios::binary);
  if (!stream) raise<SystemError>("{}: cannot open: {}", file.string(), errno_text());
  std::string content(std::istreambuf_iterator<char>(stream), {});
  if (stream.bad()) raise<SystemError>("{}: cannot read: {}", file.string(), errno_text());
  return content;
}

// Not blocking, so that opening a pipe's name ends too.
InputFile::InputFile(const std::filesystem::path& file)
    : file_(file), descriptor_(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  struct stat status {};
  if (!descriptor_.is_open() || ::fstat(descriptor_.get(), &status) != 0)
    raise<SystemError>("{}: cannot open: {}", file.string(), errno_text());
  if (!S_ISREG(status.st_mode)) raise<SystemError>("{}: is a directory or a device, not a file", file.string());
  size_ = static_cast<std::uint64_t>(status.st_size);
}

void InputFile::read(std::span<std::byte> out) {
  while (!out.empty()) {
    // A call reads 2 GiB at most.
    const ssize_t count = ::read(descriptor_.get(), out.data(), out.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) raise<SystemError>("{}: cannot read: {}", file_.string(), errno_text());
    if (count == 0) raise<SystemError>("{}: became shorter than {} bytes while it was read", file_.string(), size_);
    out = out.subspan(static_cast<std::size_t>(count));
  }
}

void write_file_atomically(const std::filesystem::path& file, std::string_view content) {
  write_file_atomically(file, std::span(&content, 1));
}

void write_file_atomically(const std::filesystem::path& file, std::span<const std::string_view> parts) {
  std::filesystem::path temporary = file;
  temporary += ".partial";
  try {
    write_synced(temporary, parts);
    if (::rename(temporary.c_str(), file.c_str()) != 0)
      raise<SystemError>("{}: cannot rename to {}: {}", temporary.string(), file.string(), errno_text());
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  // The rename itself is durable once the directory is synced.
  sync_directory(parent_of(file));
}

void sync_directory(const std::filesystem::path& directory) {
  const FileDescriptor descriptor(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // File systems that cannot sync a directory say EINVAL: nothing better is to be had there.
  if (!descriptor.is_open() || (::fsync(descriptor.get()) != 0 && errno != EINVAL))
    raise<SystemError>("{}: cannot sync the directory: {}", directory.string(), errno_text());
}

std::filesystem::path parent_of(const std::filesystem::path& file) {
  return file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
}

}  // namespace sumpter
