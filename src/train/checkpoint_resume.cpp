// Whether a checkpoint fits a run, and its arrays' way into the run.
#include <algorithm>
#include <cstring>
#include <set>

#include "base/error.h"
#include "train/checkpoint.h"

namespace sumpter {
namespace {

using Json = nlohmann::ordered_json;

// A value as a message shows it.
std::string shown(const Json& value) {
  constexpr std::size_t kMost = 200;
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.size() <= kMost ? text : fmt::format("{}...", text.substr(0, kMost));
}

std::string remedy(const std::filesystem::path& origin) {
  return fmt::format("set this run up as the checkpoint says, or begin a new one with --init {} for the weights alone",
                     (origin / "weights.safetensors").string());
}

void compare(const Json& saved, const Json& now, const std::string& path, const std::filesystem::path& origin) {
  const auto below = [&](const std::string& key) { return path.empty() ? key : fmt::format("{}.{}", path, key); };
  if (!saved.is_object() || !now.is_object()) {
    if (saved == now) return;
    raise<RequestError>("{} is {} in {} and {} in this run; {}", path, shown(saved), origin.string(), shown(now),
                        remedy(origin));
  }
  for (const auto& [key, value] : saved.items()) {
    if (!now.contains(key))
      raise<RequestError>("{} is {} in {}, and this run has no such key; {}", below(key), shown(value), origin.string(),
                          remedy(origin));
    compare(value, now.at(key), below(key), origin);
  }
  for (const auto& [key, value] : now.items()) {
    if (!saved.contains(key))
      raise<RequestError>("{} is {} in this run, and {} has no such key; {}", below(key), shown(value), origin.string(),
                          remedy(origin));
  }
}

std::string describe(ElementType type, std::span<const std::int64_t> shape) {
  return fmt::format("{} of shape [{}]", name_of(type), fmt::join(shape, ", "));
}

bool widens(const NamedArray& array, const TargetArray& target) {
  return array.type == ElementType::f32 && target.type == ElementType::f64;
}

void fill(const NamedArray& array, const TargetArray& target) {
  if (!widens(array, target)) {
    std::ranges::copy(array.bytes, target.bytes.begin());
    return;
  }
  for (std::size_t i = 0; i < array.bytes.size() / sizeof(float); ++i) {
    float value = 0;
    std::memcpy(&value, array.bytes.data() + i * sizeof(float), sizeof(float));
    const double wide = value;
    std::memcpy(target.bytes.data() + i * sizeof(double), &wide, sizeof(double));
  }
}

// The file's array for a target.
const NamedArray& source_of(const TargetArray& target, const SafetensorsFile& file,
                            const std::filesystem::path& origin) {
  const NamedArray* array = file.find(target.name);
  if (array == nullptr)
    raise<RequestError>("{}: has no array \"{}\", which this run has", origin.string(), target.name);
  if ((array->type != target.type && !widens(*array, target)) || array->shape != target.shape)
    raise<RequestError>("{}: the array \"{}\" is {}, and {} in this run", origin.string(), target.name,
                        describe(array->type, array->shape), describe(target.type, target.shape));
  const std::size_t needed = array->bytes.size() / size_of(array->type) * size_of(target.type);
  if (needed != target.bytes.size())
    raise<RequestError>("\"{}\" is {}, which is {} bytes, but has room for {}", target.name,
                        describe(target.type, target.shape), needed, target.bytes.size());
  return *array;
}

}  // namespace

void require_same(const Json& saved, const Json& now, const std::filesystem::path& origin) {
  compare(saved, now, "", origin);
}

void restore(const SafetensorsFile& file, std::span<const TargetArray> targets, const std::filesystem::path& origin,
             Surplus surplus) {
  std::set<std::string_view> names;
  for (const TargetArray& target : targets) {
    source_of(target, file, origin);
    names.insert(target.name);
  }
  for (const NamedArray& array : file.arrays()) {
    if (surplus == Surplus::refused && !names.contains(array.name))
      raise<RequestError>("{}: has the array \"{}\", which this run has not", origin.string(), array.name);
  }
  for (const TargetArray& target : targets) fill(source_of(target, file, origin), target);
}

}  // namespace sumpter
