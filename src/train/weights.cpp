#include "train/weights.h"

#include <unistd.h>
#include <xxhash.h>

#include <array>
#include <bit>

#include "base/error.h"
#include "base/file.h"
#include "train/safetensors.h"

namespace sumpter {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors files and digests are little-endian");

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

NamedArray bytes_array(std::string name, std::span<const std::byte> bytes) {
  return {std::move(name), ElementType::u8, {static_cast<std::int64_t>(bytes.size())}, bytes};
}

std::string digest(std::span<const NamedArray> arrays) {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), &XXH3_freeState);
  if (state == nullptr) raise<SystemError>("no memory for the state of a digest");
  XXH3_128bits_reset(state.get());
  constexpr char kEnd = '\0';  // of a name
  const auto add = [&](std::string_view bytes) { XXH3_128bits_update(state.get(), bytes.data(), bytes.size()); };
  for (const NamedArray& array : arrays) {
    add(array.name);
    add({&kEnd, 1});
    // Nothing for float32: digests are older than other types.
    if (array.type != ElementType::f32) add(name_of(array.type));
    add(text_of(std::as_bytes(std::span(array.shape))));
    add(text_of(array.bytes));
  }
  const XXH128_hash_t hash = XXH3_128bits_digest(state.get());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

void require_writable(const std::filesystem::path& file) {
  const std::filesystem::path parent = parent_of(file);
  std::error_code ignored;
  if (!std::filesystem::is_directory(parent, ignored))
    raise<RequestError>("{}: the directory {} does not exist; make it first", file.string(), parent.string());
  const std::filesystem::file_status status = std::filesystem::status(file, ignored);
  if (file.filename().empty() || (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)))
    raise<RequestError>("{}: is a directory or a device; name a file", file.string());
  if (::access(parent.c_str(), W_OK | X_OK) != 0)
    raise<RequestError>("{}: the directory {} cannot be written: {}", file.string(), parent.string(), errno_text());
}

void write_safetensors(std::span<const NamedArray> arrays, const std::filesystem::path& file,
                       const Metadata& metadata) {
  const SafetensorsLayout layout = lay_out_safetensors(arrays, metadata, file);
  std::vector<std::string_view> parts = {layout.head};
  for (const std::size_t index : layout.order) parts.push_back(text_of(arrays[index].bytes));
  write_file_atomically(file, parts);
}

SafetensorsFile SafetensorsFile::read(const std::filesystem::path& file) {
  InputFile input(file);
  std::array<std::uint64_t, 1> length{};
  if (input.size() < sizeof(length))
    raise<DataError>("{}: has {} bytes; a safetensors file begins with the 8 bytes of its header's length",
                     file.string(), input.size());
  input.read(std::as_writable_bytes(std::span(length)));
  const std::uint64_t rest = input.size() - sizeof(length);
  if (length[0] > rest || length[0] > kMaxHeaderBytes)
    raise<DataError>(
        "{}: is no whole safetensors file: its header's length is {}, but {} bytes follow, and {} are the "
        "most",
        file.string(), length[0], rest, kMaxHeaderBytes);
  std::string text(length[0], '\0');
  input.read(std::as_writable_bytes(std::span(text)));

  const std::uint64_t data_bytes = rest - length[0];
  SafetensorsHeader header = parse_safetensors_header(text, data_bytes, file);
  SafetensorsFile result;
  try {
    result.data_ = std::make_unique_for_overwrite<std::byte[]>(data_bytes);
  } catch (const std::bad_alloc&) {
    raise<SystemError>("{}: its arrays have {} bytes, for which there is no memory", file.string(), data_bytes);
  }
  input.read({result.data_.get(), data_bytes});
  result.metadata_ = std::move(header.metadata);
  for (SafetensorsEntry& entry : header.entries) {
    const std::span<const std::byte> bytes(result.data_.get() + entry.begin, entry.end - entry.begin);
    result.arrays_.push_back({std::move(entry.name), entry.type, std::move(entry.shape), bytes});
  }
  for (std::size_t index = 0; index < result.arrays_.size(); ++index)
    result.index_.emplace(result.arrays_[index].name, index);
  return result;
}

const NamedArray* SafetensorsFile::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &arrays_[found->second];
}

}  // namespace sumpter
