// What `sumpter train` is asked for, and the training that it means.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "kernels/kernels.h"
#include "train/train.h"

namespace CLI {
class App;
}

namespace sumpter::cli {

// The options as they were given; what was not stays empty or has its default.
struct TrainArguments {
  std::string model = "lenet";
  std::string data;
  std::string plan, devices, route, chunk, piece, update;
  std::optional<int> reducers, preload;
  std::uint64_t batch_size = 128, epochs = 0, steps = 0, seed = 0;
  int threads_per_replica = 1;
  // A rate at which runs that differ in rounding alone, as those of one and of several replicas do, stay together.
  kernels::Sgd optimizer{.learning_rate = 0.005F, .momentum = 0.9F};
  std::string metrics, weights;
  bool digest = false, json = false, quiet = false, no_progress = false;
};

// Declares the options; `arguments` outlives the app.
void declare_options(CLI::App& app, TrainArguments& arguments);

// The plan's file, overridden by the options given beside it. Throws RequestError naming the option.
Plan plan_of(const TrainArguments& arguments);

// Opens the data. Throws RequestError naming the option, DataError.
TrainOptions options_of(const TrainArguments& arguments);

}  // namespace sumpter::cli
