// Checkpoints whose every byte follows from their step, and what a directory of them holds.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>

#include "base/error.h"
#include "tests/train/arrays.h"
#include "train/checkpoint.h"

namespace sumpter::tests {

// Names of what is in the directory, but for the lock.
inline std::set<std::string> names_in(const std::filesystem::path& directory) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) names.insert(entry.path().filename());
  names.erase(".lock");
  return names;
}

// `version` tells apart two checkpoints of the same step.
class MadeUp {
 public:
  explicit MadeUp(std::uint64_t step, int version = 0, std::size_t count = 100) : step_(step), version_(version) {
    std::vector<float> weights(count);
    std::vector<double> state(count);
    for (std::size_t index = 0; index < count; ++index) {
      weights[index] = static_cast<float>(step * 1000 + index) + 0.25F * static_cast<float>(version);
      state[index] = -weights[index];
    }
    weights_.add("fc.weight", ElementType::f32, {2, static_cast<std::int64_t>(count / 2)}, weights)
        .add<float>("fc.bias", ElementType::f32, {1}, {static_cast<float>(step)});
    state_.add("optimizer.first.fc.weight", ElementType::f64, {static_cast<std::int64_t>(count)}, state)
        .add<std::uint8_t>("random", ElementType::u8, {3}, {1, 2, 3});
  }
  CheckpointContent content() const {
    return {.step = step_,
            .weights = weights_.views(),
            .state = state_.views(),
            .facts = {{"model", {{"name", "lenet"}}}, {"optimizer", {{"momentum", 0.9}, {"nesterov", false}}}},
            .progress = {{"rows", step_ * 128}, {"version", version_}}};
  }
  // That the checkpoint is this one, whole.
  void expect_in(const LoadedCheckpoint& loaded) const {
    EXPECT_EQ(loaded.step, step_);
    expect_same(loaded.weights.arrays(), weights_.views());
    expect_same(loaded.state.arrays(), state_.views());
    EXPECT_EQ(loaded.facts, content().facts);
    EXPECT_EQ(loaded.progress, content().progress);
  }

 private:
  std::uint64_t step_;
  int version_;
  Arrays weights_, state_;
};

// Everything that has a checkpoint's name is one that MadeUp made, and the links lead to such. The steps there are.
inline std::set<std::uint64_t> expect_all_whole(const std::filesystem::path& directory) {
  std::set<std::uint64_t> steps;
  for (const std::string& name : names_in(directory)) {
    if (name.starts_with(".")) continue;
    const LoadedCheckpoint loaded = load_checkpoint(directory / name);
    MadeUp(loaded.step, loaded.progress.at("version")).expect_in(loaded);
    if (name.starts_with("step-")) {
      EXPECT_EQ(name, fmt::format("step-{:09}", loaded.step));
      steps.insert(loaded.step);
    }
  }
  return steps;
}

}  // namespace sumpter::tests
