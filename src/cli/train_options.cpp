#include "cli/train_options.h"

#include <CLI/App.hpp>
#include <limits>

#include "base/error.h"
#include "base/units.h"
#include "cli/numbers.h"
#include "input/open.h"
#include "train/devices.h"
#include "train/weights.h"

namespace sumpter::cli {
namespace {

constexpr std::uint64_t kMost = std::uint64_t{1} << 40;
constexpr float kLargest = std::numeric_limits<float>::max();

void declare_run(CLI::App& app, TrainArguments& a) {
  app.add_option("--model", a.model, "A built-in model (`sumpter models` lists them)")->capture_default_str();
  app.add_option("--data", a.data, "A directory with IDX files, an IDX images file, or synthetic[:key=value,...]")
      ->required();
  app.add_option("--devices", a.devices, "Where replicas compute: cpu:N, 1 to 64 (default: the plan's, or cpu:1)");
  add_number<std::uint64_t>(app, "--batch-size", a.batch_size, {1, kMost}, "Rows of a step over all replicas (128)");
  add_number<std::uint64_t>(app, "--epochs", a.epochs, {1, kMost}, "Times that every row is used; or:");
  add_number<std::uint64_t>(app, "--steps", a.steps, {1, kMost}, "Batches that are used");
  add_number<int>(app, "--threads-per-replica", a.threads_per_replica, {1, 1024}, "Threads that compute (1)");
  add_number<std::uint64_t>(app, "--seed", a.seed, {0, std::numeric_limits<std::uint64_t>::max()},
                            "Of the parameters and of the order of rows (0)");
}

void declare_plan(CLI::App& app, TrainArguments& a) {
  constexpr auto kGroup = "The plan";
  const auto add = [&](const char* name, std::string& target, const char* description) {
    app.add_option(name, target, description)->group(kGroup);
  };
  add("--plan", a.plan, "A plan's file; the options below override it");
  add("--route", a.route, "How sums are made: host");
  add("--chunk", a.chunk, "Gradients that travel together: a size (1MiB), Nlayers or all (1MiB)");
  add("--piece", a.piece, "Bytes that are summed at a time (128KiB)");
  add("--update", a.update, "Where the optimizer runs: device or host (device)");
  add_number<int>(app, "--reducers", a.reducers, {0, kMaxReducers}, "Threads that only sum (0)")->group(kGroup);
  add_number<int>(app, "--preload", a.preload, {0, kMaxPreload}, "Batches that are loaded ahead (2)")->group(kGroup);
}

void declare_optimizer(CLI::App& app, TrainArguments& a) {
  constexpr auto kGroup = "The optimizer: SGD, as torch defines it";
  const auto add = [&](const char* name, float& target, const char* description) {
    add_number<float>(app, name, target, {0.0F, kLargest}, description)->group(kGroup);
  };
  add("--learning-rate", a.optimizer.learning_rate, "(0.005)");
  add("--momentum", a.optimizer.momentum, "(0.9)");
  add("--weight-decay", a.optimizer.weight_decay, "(0)");
}

void declare_results(CLI::App& app, TrainArguments& a) {
  constexpr auto kGroup = "Results";
  app.add_option("--metrics", a.metrics, "A file for one JSON object a step, and the run's counters")->group(kGroup);
  app.add_option("--weights", a.weights, "A safetensors file for the final parameters")->group(kGroup);
  app.add_flag("--digest", a.digest, "Print a hash of the final parameters")->group(kGroup);
  app.add_flag("--json", a.json, "Print the summary as one JSON object")->group(kGroup);
  app.add_flag("--no-progress", a.no_progress, "No progress on standard error")->group(kGroup);
  app.add_flag("--quiet", a.quiet, "Only warnings and errors on standard error")->group(kGroup);
}

// Runs `work`; what it throws becomes a RequestError that begins with the option.
template <typename Work>
auto naming(std::string_view option, Work work) {
  try {
    return work();
  } catch (const DataError&) {
    throw;
  } catch (const Error& error) {
    raise<RequestError>("{}: {}", option, error.what());
  }
}

// Made-up data fits the model. Files do not tell how many classes they have: that of the sets that MNIST began, or more
// where the model tells more apart.
OpenOptions open_options(const TrainArguments& a, const ModelSpec& model) {
  constexpr int kUsualClasses = 10;
  const int classes = static_cast<int>(model.classes());
  return {.classes = a.data.starts_with("synthetic") ? classes : std::max(classes, kUsualClasses),
          .synthetic_shape = usual_shape(model)};
}

}  // namespace

void declare_options(CLI::App& app, TrainArguments& arguments) {
  declare_run(app, arguments);
  declare_plan(app, arguments);
  declare_optimizer(app, arguments);
  declare_results(app, arguments);
}

Plan plan_of(const TrainArguments& a) {
  Plan plan = a.plan.empty() ? Plan{} : naming("--plan", [&] { return read_plan(a.plan); });
  if (!a.devices.empty()) plan.replicas = parse_devices(a.devices, "--devices");
  if (!a.route.empty()) plan.route = parse_route(a.route, "--route");
  if (!a.chunk.empty()) plan.chunk = parse_chunk_rule(a.chunk, "--chunk");
  if (!a.piece.empty()) plan.piece = parse_bytes(a.piece, "--piece");
  if (!a.update.empty()) plan.update = parse_update(a.update, "--update");
  plan.reducers = a.reducers.value_or(plan.reducers);
  plan.preload = a.preload.value_or(plan.preload);
  validate(plan);
  return plan;
}

TrainOptions options_of(const TrainArguments& a) {
  if ((a.epochs == 0) == (a.steps == 0))
    raise<RequestError>("--epochs or --steps: give one of them; {} given", a.epochs == 0 ? "none was" : "both were");
  TrainOptions options;
  options.model = parse_model(a.model, "--model");
  options.plan = plan_of(a);
  options.batch_size = a.batch_size;
  options.epochs = a.epochs;
  options.steps = a.steps;
  options.threads_per_replica = a.threads_per_replica;
  options.optimizer = a.optimizer;
  options.seed = a.seed;
  options.digest = a.digest;
  options.weights = a.weights;
  if (!a.weights.empty() && a.weights == a.metrics)
    raise<RequestError>("--weights and --metrics: both name {}; give each a file of its own", a.weights);
  if (!a.weights.empty()) naming("--weights", [&] { require_writable(a.weights); });
  options.data = naming("--data", [&] { return open_dataset(a.data, open_options(a, options.model)); });
  return options;
}

}  // namespace sumpter::cli
