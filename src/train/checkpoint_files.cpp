#include "train/checkpoint_files.h"

#include <sys/stat.h>

#include <string_view>

#include "base/error.h"

namespace sumpter {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int kFormat = 1;
constexpr std::string_view kWeightsFile = "weights.safetensors", kStateFile = "state.safetensors";
// Of the state file: a JSON text, and the digest of this text and the file's arrays.
constexpr const char *kDescription = "checkpoint", *kDigest = "digest";

// The digest that the state file carries: of its description, as if this were an array, and its arrays.
std::string digest_of_state(std::string_view description, std::span<const NamedArray> state) {
  std::vector<NamedArray> arrays = {bytes_array(kDescription, std::as_bytes(std::span(description)))};
  arrays.insert(arrays.end(), state.begin(), state.end());
  return digest(arrays);
}

std::string describe(const CheckpointContent& content) {
  if (!content.facts.is_object() || !content.progress.is_object())
    raise<RequestError>("the checkpoint of step {}: facts and progress have to be objects", content.step);
  const Json description = {{"format", kFormat},
                            {"step", content.step},
                            {"weights_digest", digest(content.weights)},
                            {"facts", content.facts},
                            {"progress", content.progress}};
  try {
    return description.dump();
  } catch (const Json::exception&) {
    raise<RequestError>("the checkpoint of step {}: facts or progress have a text that is not UTF-8", content.step);
  }
}

// What the state file says in its metadata.
struct Description {
  std::uint64_t step = 0;
  std::string weights_digest;
  Json facts, progress;
};

// The JSON that describe() writes; facts and progress are flat, and a file that nests deeper is none of ours, and would
// take the stack of who walks it.
Json parse_json(const std::string& text, const fs::path& file) {
  constexpr int kDeepest = 32;
  const auto limit = [&](int depth, Json::parse_event_t /*event*/, const Json& /*value*/) {
    if (depth > kDeepest) raise<DataError>("{}: its description nests deeper than {} levels", file.string(), kDeepest);
    return true;
  };
  try {
    return Json::parse(text, limit);
  } catch (const Json::parse_error& error) {
    raise<DataError>("{}: its description is not JSON at its byte {}", file.string(), error.byte);
  }
}

Description parse_description(const std::string& text, const fs::path& file) {
  const Json json = parse_json(text, file);
  const auto at = [&](const char* key, bool (Json::*has_type)() const noexcept, std::string_view type) -> const Json& {
    const auto found = json.find(key);
    if (found == json.end() || !((*found).*has_type)())
      raise<DataError>("{}: its description has no \"{}\" that is {}", file.string(), key, type);
    return *found;
  };
  if (!json.is_object()) raise<DataError>("{}: its description is no object", file.string());
  if (const Json& format = at("format", &Json::is_number_unsigned, "a number"); format != kFormat)
    raise<DataError>("{}: has format {}; this version reads format {}", file.string(), format.dump(), kFormat);
  return {.step = at("step", &Json::is_number_unsigned, "a number"),
          .weights_digest = at("weights_digest", &Json::is_string, "a text"),
          .facts = at("facts", &Json::is_object, "an object"),
          .progress = at("progress", &Json::is_object, "an object")};
}

const std::string& metadata_of(const SafetensorsFile& state, const char* key, const fs::path& file) {
  const auto found = state.metadata().find(key);
  if (found == state.metadata().end())
    raise<DataError>("{}: is no checkpoint's state: its metadata has no \"{}\"", file.string(), key);
  return found->second;
}

}  // namespace

void write_checkpoint(const CheckpointContent& content, const fs::path& directory) {
  if (::mkdir(directory.c_str(), 0777) != 0)
    raise<SystemError>("{}: cannot create: {}", directory.string(), errno_text());
  const std::string description = describe(content);
  write_safetensors(content.weights, directory / kWeightsFile);
  write_safetensors(content.state, directory / kStateFile,
                    {{kDescription, description}, {kDigest, digest_of_state(description, content.state)}});
}

LoadedCheckpoint load_checkpoint(const fs::path& directory) {
  const fs::path file = directory / kStateFile;
  SafetensorsFile state = SafetensorsFile::read(file);
  const std::string& text = metadata_of(state, kDescription, file);
  const std::string found = digest_of_state(text, state.arrays());
  if (const std::string& expected = metadata_of(state, kDigest, file); found != expected)
    raise<DataError>("{}: is damaged: its digest is {}, and {} was written", file.string(), found, expected);

  const Description description = parse_description(text, file);
  SafetensorsFile weights = SafetensorsFile::read(directory / kWeightsFile);
  if (const std::string digest_found = weights.digest(); digest_found != description.weights_digest)
    raise<DataError>("{}: is damaged or another checkpoint's: its digest is {}, and {} says {}",
                     (directory / kWeightsFile).string(), digest_found, kStateFile, description.weights_digest);
  return {directory, description.step, std::move(weights), std::move(state), description.facts, description.progress};
}

}  // namespace sumpter
