#include "train/checkpoint.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <functional>
#include <system_error>

#include "base/error.h"
#include "base/log.h"

namespace sumpter {
namespace {

namespace fs = std::filesystem;

// What a directory is called while it is none that counts.
constexpr std::string_view kWriting = ".writing-", kReplaced = ".replaced-", kRemoving = ".removing-";

std::string name_of_step(std::uint64_t step) { return fmt::format("step-{:09}", step); }

std::optional<std::uint64_t> step_of(const std::string& name) {
  constexpr std::string_view kPrefix = "step-";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  std::uint64_t step = 0;
  std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), step);
  return name == name_of_step(step) ? std::optional(step) : std::nullopt;
}

std::vector<std::string> names_in(const fs::path& directory) {
  std::vector<std::string> names;
  try {
    for (const fs::directory_entry& entry : fs::directory_iterator(directory))
      names.push_back(entry.path().filename().string());
  } catch (const fs::filesystem_error& error) {
    raise<SystemError>("{}: cannot be read: {}", directory.string(), error.code().message());
  }
  return names;
}

// Newest first.
std::vector<std::uint64_t> steps_in(const fs::path& directory) {
  std::vector<std::uint64_t> steps;
  for (const std::string& name : names_in(directory)) {
    if (const std::optional<std::uint64_t> step = step_of(name)) steps.push_back(*step);
  }
  std::ranges::sort(steps, std::greater<>());
  return steps;
}

void rename_or_raise(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0)
    raise<SystemError>("{}: cannot rename to {}: {}", from.string(), to.string(), errno_text());
}

// Removes what no checkpoint depends on; when that fails, the next run tries again.
void remove_hidden(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) log::warning("{}: cannot be removed: {}", path.string(), error.message());
}

std::size_t bytes_of(const CheckpointContent& content) {
  std::size_t bytes = 0;
  for (const std::span<const NamedArray> arrays : {content.weights, content.state}) {
    for (const NamedArray& array : arrays) bytes += array.bytes.size();
  }
  return bytes;
}

// Gives a whole directory its name, which another may have already.
void put_in_place(const fs::path& written, const fs::path& place, const fs::path& aside) {
  if (::rename(written.c_str(), place.c_str()) == 0) return;
  if (errno != ENOTEMPTY && errno != EEXIST)
    raise<SystemError>("{}: cannot rename to {}: {}", written.string(), place.string(), errno_text());
  // Where the file system cannot exchange the two there is a moment without; CheckpointFolder() then brings it back.
  if (::renameat2(AT_FDCWD, written.c_str(), AT_FDCWD, place.c_str(), RENAME_EXCHANGE) == 0) return;
  rename_or_raise(place, aside);
  try {
    rename_or_raise(written, place);
  } catch (...) {
    ::rename(aside.c_str(), place.c_str());
    throw;
  }
}

// What a run that was killed left behind.
void clear_leftovers(const fs::path& directory) {
  for (const std::string& name : names_in(directory)) {
    if (name.starts_with(kReplaced)) {
      const fs::path place = directory / name.substr(kReplaced.size());
      // Killed between two renames.
      if (std::error_code ignored; !fs::exists(place, ignored)) {
        rename_or_raise(directory / name, place);
        continue;
      }
    }
    if (name.starts_with(kReplaced) || name.starts_with(kWriting) || name.starts_with(kRemoving))
      remove_hidden(directory / name);
  }
}

FileDescriptor lock(const fs::path& directory) {
  const fs::path file = directory / ".lock";
  FileDescriptor descriptor(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!descriptor.is_open())
    raise<RequestError>("{}: cannot write checkpoints here: {}", directory.string(), errno_text());
  if (::flock(descriptor.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) {
      log::warning("{}: cannot be locked ({}); make sure that no other run uses it", directory.string(), errno_text());
      return descriptor;
    }
    std::array<char, 24> pid{};
    const ssize_t length = ::pread(descriptor.get(), pid.data(), pid.size(), 0);
    raise<RequestError>(
        "{}: another run (pid {}) writes its checkpoints here; wait for its end, or name another "
        "directory",
        directory.string(), length > 0 ? std::string_view(pid.data(), static_cast<std::size_t>(length)) : "unknown");
  }
  // For the message above alone, so that it may fail.
  const std::string pid = fmt::to_string(::getpid());
  if (::ftruncate(descriptor.get(), 0) != 0 || ::pwrite(descriptor.get(), pid.data(), pid.size(), 0) < 0)
    log::debug("{}: cannot write: {}", file.string(), errno_text());
  return descriptor;
}

fs::path make_directory(fs::path directory, int keep) {
  if (keep < 1) raise<RequestError>("{}: {} checkpoints are to be kept; keep 1 or more", directory.string(), keep);
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) raise<RequestError>("{}: cannot make the directory: {}", directory.string(), error.message());
  if (::access(directory.c_str(), W_OK | X_OK) != 0)
    raise<RequestError>("{}: the directory cannot be written: {}", directory.string(), errno_text());
  return directory;
}

}  // namespace

CheckpointFolder::CheckpointFolder(fs::path directory, int keep)
    : directory_(make_directory(std::move(directory), keep)),
      keep_(static_cast<std::size_t>(keep)),
      lock_(lock(directory_)) {
  clear_leftovers(directory_);
}

fs::path CheckpointFolder::write(const CheckpointContent& content, bool best) {
  const std::string name = name_of_step(content.step);
  const fs::path written = directory_ / (std::string(kWriting) + name);
  const fs::path aside = directory_ / (std::string(kReplaced) + name);
  try {
    write_checkpoint(content, written);
    put_in_place(written, directory_ / name, aside);
    sync_directory(directory_);
    point("latest", name);
    if (best) point("best", name);
    sync_directory(directory_);
  } catch (const SystemError& error) {
    remove_hidden(written);
    raise<SystemError>("{}: cannot write the checkpoint of step {}, whose arrays have {} bytes: {}",
                       directory_.string(), content.step, bytes_of(content), error.what());
  } catch (...) {
    remove_hidden(written);
    throw;
  }
  // Whatever the name had before.
  remove_hidden(written);
  remove_hidden(aside);
  remove_surplus(content.step);
  return directory_ / name;
}

bool CheckpointFolder::empty() const { return steps_in(directory_).empty(); }

std::optional<LoadedCheckpoint> CheckpointFolder::newest() const {
  std::string damage;
  for (const std::uint64_t step : steps_in(directory_)) {
    const fs::path place = directory_ / name_of_step(step);
    try {
      LoadedCheckpoint loaded = load_checkpoint(place);
      if (loaded.step == step) return loaded;
      raise<DataError>("{}: holds the checkpoint of step {}", place.string(), loaded.step);
    } catch (const Error& error) {
      log::warning("a checkpoint is passed over: {}", error.what());
      if (damage.empty()) damage = error.what();
    }
  }
  if (damage.empty()) return std::nullopt;
  raise<DataError>("{}: has no whole checkpoint, only damaged ones; remove them to start anew. The newest: {}",
                   directory_.string(), damage);
}

void CheckpointFolder::point(const char* link, const std::string& name) const {
  const fs::path temporary = directory_ / fmt::format("{}{}", kWriting, link);
  ::unlink(temporary.c_str());
  if (::symlink(name.c_str(), temporary.c_str()) != 0)
    raise<SystemError>("{}: cannot create: {}", temporary.string(), errno_text());
  rename_or_raise(temporary, directory_ / link);
}

void CheckpointFolder::remove_surplus(std::uint64_t step) const {
  std::error_code ignored;
  const std::string best = fs::read_symlink(directory_ / "best", ignored).filename().string();
  std::size_t kept = 0;
  for (const std::uint64_t other : steps_in(directory_)) {
    const std::string name = name_of_step(other);
    if (other > step || ++kept <= keep_ || name == best) continue;
    // Renamed first: half of a directory must not have the name of a whole one.
    const fs::path hidden = directory_ / (std::string(kRemoving) + name);
    if (::rename((directory_ / name).c_str(), hidden.c_str()) != 0)
      log::warning("{}: cannot be removed: {}", (directory_ / name).string(), errno_text());
    else
      remove_hidden(hidden);
  }
}

}  // namespace sumpter
