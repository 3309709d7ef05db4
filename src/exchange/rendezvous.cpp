// Values as files. A value is written beside its place and renamed into it, so that a reader sees all of it or nothing.
#include <fmt/format.h>
#include <unistd.h>

#include <cctype>
#include <fstream>
#include <iterator>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "sumpter/exchange.h"

namespace sumpter {
namespace {

// Keys may hold any characters; file names had better not.
std::string file_name(const std::string& key) {
  std::string name;
  for (const unsigned char c : key)
    name += std::isalnum(c) != 0 ? std::string(1, static_cast<char>(c)) : fmt::format("%{:02x}", c);
  return name;
}

}  // namespace

FileRendezvous::FileRendezvous(std::filesystem::path directory) : directory_(std::move(directory)) {}

void FileRendezvous::set(const std::string& key, const std::string& value) {
  std::filesystem::create_directories(directory_);
  const auto path = directory_ / file_name(key);
  const auto draft = directory_ / fmt::format("{}.{}.draft", file_name(key), getpid());
  std::ofstream file(draft, std::ios::binary);
  file << value;
  file.close();
  if (!file) raise<SystemError>("{} cannot be written: {}", draft.string(), errno_text());
  std::filesystem::rename(draft, path);
}

std::string FileRendezvous::get(const std::string& key, std::chrono::milliseconds limit) {
  const auto path = directory_ / file_name(key);
  const auto deadline = Clock::now() + limit;
  while (true) {
    std::ifstream file(path, std::ios::binary);
    if (file) return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    if (Clock::now() >= deadline) {
      throw TimeoutError(fmt::format("nobody has set {} in {} within {} ms", key, directory_.string(), limit.count()),
                         -1);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

}  // namespace sumpter
