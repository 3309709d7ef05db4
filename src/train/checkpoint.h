// Checkpoints: what a run needs to go on as if it had never ended. Free of torch.
//
//   DIR/step-000000037/weights.safetensors   what torchvision's load_file wants
//   DIR/step-000000037/state.safetensors     all else; its metadata holds facts, progress and both files' digests
//   DIR/latest, DIR/best                     symbolic links to such directories
//
// A directory is written under a hidden name, synced and renamed, and is renamed again before it is removed: at every
// moment, one that is named step-* is whole. Links may be behind for a moment; reading goes by the directories.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "train/checkpoint_files.h"

namespace sumpter {

// A run's checkpoints. For one thread; as long as it lives, no other process, and no other folder of this one, gets at
// the directory.
class CheckpointFolder {
 public:
  // Makes the directory, and clears away what a killed run left unfinished. Keeps 1 checkpoint or more. Throws
  // RequestError where the directory cannot be written, or another run, which the message names, uses it.
  CheckpointFolder(std::filesystem::path directory, int keep);

  // Blocks until it is on the disk; then removes the oldest beyond `keep`, never the one that is `best`; those of later
  // steps, which are not this run's, neither count nor go. A checkpoint of the same step is replaced. Throws
  // SystemError with the bytes needed, and RequestError for content that no file can hold: others stay whole. Returns
  // its directory.
  std::filesystem::path write(const CheckpointContent& content, bool best);

  // Whether there is none, damaged ones included.
  bool empty() const;

  // The newest whole one; damaged ones are warned of and passed over. None where there is none at all. Throws DataError
  // where there are only damaged ones.
  std::optional<LoadedCheckpoint> newest() const;

 private:
  void point(const char* link, const std::string& name) const;
  void remove_surplus(std::uint64_t step) const;

  std::filesystem::path directory_;
  std::size_t keep_;
  FileDescriptor lock_;
};

// Throws RequestError naming the first key, by its dotted path, that only one of the two has or whose values differ,
// and what to do. `origin` is the checkpoint's directory.
void require_same(const nlohmann::ordered_json& saved, const nlohmann::ordered_json& now,
                  const std::filesystem::path& origin);

struct TargetArray {
  std::string name;
  ElementType type = ElementType::f32;
  std::vector<std::int64_t> shape;
  std::span<std::byte> bytes;  // a view, written to
};
// Whether the file may have arrays that no target is for.
enum class Surplus { refused, allowed };
// Fills the targets from the file, which `origin` names; float32 arrays are widened for float64 targets. Throws
// RequestError naming the first array that is missing, surplus, or of another type or shape; no target is written then.
void restore(const SafetensorsFile& file, std::span<const TargetArray> targets, const std::filesystem::path& origin,
             Surplus surplus = Surplus::refused);

}  // namespace sumpter
