#include "train/weights.h"

#include <unistd.h>
#include <xxhash.h>

#include <bit>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"

namespace sumpter {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors files and digests are little-endian");

std::string_view bytes_of(const auto& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(values[0])};
}

// The length of the header, then the header, padded so that the data begins at a multiple of 8.
std::string safetensors_head(std::span<const NamedArray> arrays) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  std::size_t begin = 0;
  for (const NamedArray& array : arrays) {
    const std::size_t end = begin + array.values.size_bytes();
    header[array.name] = {{"dtype", "F32"}, {"shape", array.shape}, {"data_offsets", {begin, end}}};
    begin = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::array<std::uint64_t, 1> length = {text.size()};
  return std::string(bytes_of(length)) + text;
}

}  // namespace

std::string digest(std::span<const NamedArray> arrays) {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), &XXH3_freeState);
  if (state == nullptr) raise<SystemError>("no memory for the state of a digest");
  XXH3_128bits_reset(state.get());
  constexpr char kEnd = '\0';  // of a name
  const auto add = [&](std::string_view bytes) { XXH3_128bits_update(state.get(), bytes.data(), bytes.size()); };
  for (const NamedArray& array : arrays) {
    add(array.name);
    add({&kEnd, 1});
    add(bytes_of(array.shape));
    add(bytes_of(array.values));
  }
  const XXH128_hash_t hash = XXH3_128bits_digest(state.get());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

void require_writable(const std::filesystem::path& file) {
  const std::filesystem::path parent = file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
  std::error_code ignored;
  if (!std::filesystem::is_directory(parent, ignored))
    raise<RequestError>("{}: the directory {} does not exist; make it first", file.string(), parent.string());
  const std::filesystem::file_status status = std::filesystem::status(file, ignored);
  if (file.filename().empty() || (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)))
    raise<RequestError>("{}: is a directory or a device; name a file", file.string());
  if (::access(parent.c_str(), W_OK | X_OK) != 0)
    raise<RequestError>("{}: the directory {} cannot be written: {}", file.string(), parent.string(), errno_text());
}

void write_safetensors(std::span<const NamedArray> arrays, const std::filesystem::path& file) {
  const std::string head = safetensors_head(arrays);
  std::vector<std::string_view> parts = {head};
  for (const NamedArray& array : arrays) parts.push_back(bytes_of(array.values));
  write_file_atomically(file, parts);
}

}  // namespace sumpter
