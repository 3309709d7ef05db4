// What `sumpter train` is asked for, and the training that it means.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "sumpter/train.h"
#include "train/catalogue.h"

namespace CLI {
class App;
}

namespace sumpter::cli {

// The options as they were given; what was not stays empty or has its default.
struct TrainArguments {
  // What is trained on what.
  std::string model = "lenet", data;
  std::int64_t classes = 0;
  int image_size = 0;
  std::string augment;
  std::uint64_t batch_size = 128, epochs = 0, steps = 0, seed = 0;
  int threads_per_replica = 1;
  std::string type = "float32", autocast;
  double label_smoothing = 0;
  bool allow_nondeterministic = false, allow_nonfinite = false;
  // The plan.
  std::string plan, devices, route, chunk, piece, update, gradient_wire, parameter_wire, error_feedback;
  std::optional<int> reducers, preload, accumulate;
  // The optimizer. A rate at which runs that differ in rounding alone, as those of one and of several replicas do, stay
  // together.
  std::string optimizer = "sgd";
  OptimizerOptions optimizing;
  bool decay_weights_only = false;
  std::string schedule = "constant";
  Schedule rates;
  // What is written.
  std::string checkpoint, checkpoint_every, initial_weights, metrics, weights, trace;
  int keep = 3;
  TraceOptions traced;
  bool resume = false, digest = false, json = false, quiet = false, no_progress = false;
};

// Declares the options; `arguments` outlives the app.
void declare_options(CLI::App& app, TrainArguments& arguments);

// The plan's file, overridden by the options given beside it. Throws RequestError naming the option.
Plan plan_of(const TrainArguments& arguments);

struct TrainRequest {
  ModelSpec model;
  RunOptions options;
};
// Opens the data. Throws RequestError naming the option, DataError.
TrainRequest request_of(const TrainArguments& arguments);

}  // namespace sumpter::cli
