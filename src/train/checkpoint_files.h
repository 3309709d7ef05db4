// The two files of a checkpoint, and how a reader knows that they are whole and belong together. Free of torch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>

#include "train/weights.h"

namespace sumpter {

// Texts are UTF-8, numbers finite.
struct CheckpointContent {
  std::uint64_t step = 0;               // steps done
  std::span<const NamedArray> weights;  // views
  std::span<const NamedArray> state;    // views: optimizer, error feedback, buffers of other replicas, random state
  nlohmann::ordered_json facts;         // what a run that resumes must agree with: nested objects
  nlohmann::ordered_json progress;      // what it goes on from
};

struct LoadedCheckpoint {
  std::filesystem::path directory;
  std::uint64_t step = 0;
  SafetensorsFile weights, state;
  nlohmann::ordered_json facts, progress;
};

// Makes the directory, which must not exist; when this returns, its files are whole and on the disk. Throws SystemError
// naming the file, and RequestError for content that no file can hold, which may leave a part of it.
void write_checkpoint(const CheckpointContent& content, const std::filesystem::path& directory);

// Throws DataError naming the file when one of the two is damaged or not of the same checkpoint as the other, and
// SystemError when one cannot be read.
LoadedCheckpoint load_checkpoint(const std::filesystem::path& directory);

}  // namespace sumpter
