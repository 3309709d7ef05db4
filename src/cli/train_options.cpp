#include "cli/train_options.h"

#include <CLI/App.hpp>
#include <limits>

#include "base/error.h"
#include "base/units.h"
#include "cli/numbers.h"
#include "spec/optimizer.h"
#include "spec/plan.h"
#include "sumpter/input.h"
#include "train/devices.h"
#include "train/train.h"
#include "train/weights.h"

namespace sumpter::cli {
namespace {

constexpr std::uint64_t kMost = std::uint64_t{1} << 40;
constexpr double kLargest = std::numeric_limits<float>::max();
constexpr int kLargestSide = 4096;
constexpr std::int64_t kMostClasses = std::int64_t{1} << 20;

void declare_run(CLI::App& app, TrainArguments& a) {
  app.add_option("--model", a.model, "A built-in model (`sumpter models` lists them), or a TorchScript file (.pt)")
      ->capture_default_str();
  app.add_option("--data", a.data,
                 "A directory with IDX or CIFAR files, an IDX images file, a text (text:FILE or text:DIR), or "
                 "synthetic[:key=value,...]")
      ->required();
  app.add_option("--devices", a.devices, "Where replicas compute: cpu:N, 1 to 64 (default: the plan's, or cpu:1)");
  add_number<std::uint64_t>(app, "--batch-size", a.batch_size, {1, kMost}, "Rows of a step over all replicas (128)");
  add_number<std::uint64_t>(app, "--epochs", a.epochs, {1, kMost}, "Times that every row is used; or:");
  add_number<std::uint64_t>(app, "--steps", a.steps, {1, kMost}, "Batches that are used");
  add_number<int>(app, "--threads-per-replica", a.threads_per_replica, {1, 1024}, "Threads that compute (1)");
  add_number<std::uint64_t>(app, "--seed", a.seed, {0, std::numeric_limits<std::uint64_t>::max()},
                            "Of the parameters, dropout and the order of rows (0)");
  add_number<std::int64_t>(app, "--classes", a.classes, {1, kMostClasses},
                           "Outputs of a vision model (default: the data's classes)");
  add_number<int>(app, "--image-size", a.image_size, {1, kLargestSide}, "Resize images to N x N");
  app.add_option("--augment", a.augment, "Of training images: crop[=padding] and flip, with a comma between");
  app.add_option("--dtype", a.type, "float32 or float64")->capture_default_str();
  app.add_option("--autocast", a.autocast, "bf16: compute in it what gains by it; parameters stay float32");
  add_number<double>(app, "--label-smoothing", a.label_smoothing, {0, 1}, "As torch's cross_entropy has it (0)");
  app.add_flag("--allow-nondeterministic", a.allow_nondeterministic,
               "TorchScript that draws random numbers, on several replicas");
  app.add_flag("--allow-nonfinite", a.allow_nonfinite, "Go on with a loss that is infinite or NaN");
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
  add("--gradient-wire", a.gradient_wire, "Gradients as they travel: f32, bf16, f16 or i8 (f32)");
  add("--parameter-wire", a.parameter_wire, "Parameters as they return, with --update host (f32)");
  add("--error-feedback", a.error_feedback,
      "on or off: add what rounding gradients lost to the next step's (on for i8, off for others)");
  add_number<int>(app, "--accumulate", a.accumulate, {1, kMaxAccumulate}, "Backward passes for one exchange (1)")
      ->group(kGroup);
  add_number<int>(app, "--reducers", a.reducers, {0, kMaxReducers}, "Threads that only sum (0)")->group(kGroup);
  add_number<int>(app, "--preload", a.preload, {0, kMaxPreload}, "Batches that are loaded ahead (2)")->group(kGroup);
}

void declare_optimizer(CLI::App& app, TrainArguments& a) {
  constexpr auto kGroup = "The optimizer, as torch.optim defines it";
  const auto add = [&](const char* name, double& target, const char* description, Range<double> range = {0, kLargest}) {
    add_number<double>(app, name, target, range, description)->group(kGroup);
  };
  app.add_option("--optimizer", a.optimizer, "sgd, adam or adamw")->capture_default_str()->group(kGroup);
  add("--learning-rate", a.optimizing.learning_rate, "(0.005)");
  add("--momentum", a.optimizing.momentum, "Of sgd (0.9)");
  app.add_flag("--nesterov", a.optimizing.nesterov, "Nesterov's momentum")->group(kGroup);
  add("--beta1", a.optimizing.beta1, "Of adam and adamw (0.9)", {0, 1});
  add("--beta2", a.optimizing.beta2, "Of adam and adamw (0.999)", {0, 1});
  add("--epsilon", a.optimizing.epsilon, "Of adam and adamw (1e-8)");
  add("--weight-decay", a.optimizing.weight_decay, "(0)");
  app.add_flag("--decay-weights-only", a.decay_weights_only, "No decay for parameters of one dimension: biases, norms")
      ->group(kGroup);
  add("--clip-norm", a.optimizing.clip_norm, "The largest norm of all gradients together; 0: any (0)");
  app.add_option("--schedule", a.schedule, "Of the learning rate: constant, step or cosine")
      ->capture_default_str()
      ->group(kGroup);
  add_number<std::uint64_t>(app, "--warmup", a.rates.warmup, {0, kMost}, "Steps of linear warm-up (0)")->group(kGroup);
  add_number<std::uint64_t>(app, "--schedule-every", a.rates.every, {1, kMost}, "step: steps between two drops")
      ->group(kGroup);
  add("--schedule-gamma", a.rates.gamma, "step: the factor of a drop (0.1)");
  add("--schedule-least", a.rates.least, "cosine: the last factor (0)", {0, 1});
}

void declare_results(CLI::App& app, TrainArguments& a) {
  constexpr auto kGroup = "Results";
  const auto add = [&](const char* name, std::string& target, const char* description) {
    app.add_option(name, target, description)->group(kGroup);
  };
  add("--checkpoint", a.checkpoint, "A directory for checkpoints; one is written at the end and on Ctrl-C, too");
  add("--checkpoint-every", a.checkpoint_every, "Between two checkpoints: 500steps, 10min, 90s (at the end only)");
  add_number<int>(app, "--keep", a.keep, {1, 1 << 20}, "Checkpoints that are kept, besides the best (3)")
      ->group(kGroup);
  app.add_flag("--resume", a.resume, "Go on from the newest checkpoint, bit for bit")->group(kGroup);
  add("--init", a.initial_weights, "A safetensors file to begin from, with the model's names and shapes");
  add("--metrics", a.metrics, "A file for one JSON object a step, and the run's counters");
  add("--weights", a.weights, "A safetensors file for the final parameters");
  add("--trace", a.trace, "A file for a timeline: Chrome trace JSON, opens in Perfetto");
  add_number<std::uint64_t>(app, "--trace-steps", a.traced.steps, {1, 100'000}, "Steps that it shows (10)")
      ->group(kGroup);
  add_number<std::uint64_t>(app, "--trace-first", a.traced.first_step, {0, kMost}, "Steps of the run before them (2)")
      ->group(kGroup);
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

// Vision models get an output for each class of the data; a script does not tell how many it has.
bool takes_any_classes(const ModelSpec& model) {
  return model.kind == ModelSpec::Kind::script || needs_of(model).channels == 3;
}

// Labels have to be below what the model tells apart; where it takes any number, below --classes or what the data has.
OpenOptions open_options(const TrainArguments& a, const ModelSpec& model) {
  const InputNeeds needs = needs_of(model);
  return {.classes = static_cast<int>(takes_any_classes(model) ? a.classes : model.classes()),
          .synthetic_shape = usual_shape(model),
          .text = needs.kind == InputKind::bytes,
          .context = needs.context,
          .seed = a.seed};
}

AugmentOptions parse_augment(std::string_view text, std::uint64_t seed) {
  constexpr int kUsualPadding = 4, kMostPadding = 1024;
  AugmentOptions options{.seed = seed};
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t end = std::min(rest.find(','), rest.size());
    const std::string_view word = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (word == "flip") {
      options.flip = true;
    } else if (word == "crop") {
      options.crop_padding = kUsualPadding;
    } else if (word.starts_with("crop=")) {
      options.crop_padding = parse_number<int>(word.substr(5), "--augment: crop", {1, kMostPadding});
    } else {
      raise<RequestError>("--augment: '{}' is neither crop, crop=PADDING nor flip", word);
    }
  }
  return options;
}

bool parse_switch(std::string_view text, std::string_view option) {
  if (text != "on" && text != "off") raise<RequestError>("{}: '{}' is neither on nor off", option, text);
  return text == "on";
}

Precision precision_of(const TrainArguments& a) {
  if (a.type != "float32" && a.type != "float64")
    raise<RequestError>("--dtype: '{}' is neither float32 nor float64", a.type);
  if (a.autocast.empty()) return a.type == "float64" ? Precision::float64 : Precision::float32;
  if (a.autocast != "bf16") raise<RequestError>("--autocast: '{}' is not bf16", a.autocast);
  if (a.type == "float64") raise<RequestError>("--autocast: bf16 goes with --dtype float32");
  return Precision::bf16;
}

// "500steps", or a time: "10min", "90s", "2h".
void parse_cadence(std::string_view text, CheckpointOptions& options) {
  constexpr std::string_view kOption = "--checkpoint-every";
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const std::string_view unit = text.substr(digits);
  if (unit == "steps" || unit == "step") {
    options.every_steps = parse_number<std::uint64_t>(text.substr(0, digits), kOption, {1, kMost});
    return;
  }
  constexpr std::uint64_t kMostUnits = 1'000'000;
  const std::uint64_t seconds = unit == "s" ? 1 : unit == "min" ? 60 : unit == "h" ? 3600 : 0;
  if (seconds == 0 || digits == 0)
    raise<RequestError>("{}: '{}' is neither a number of steps (500steps) nor a time (90s, 10min, 2h)", kOption, text);
  options.every_time =
      std::chrono::seconds(seconds * parse_number<std::uint64_t>(text.substr(0, digits), kOption, {1, kMostUnits}));
}

OptimizerOptions optimizer_of(const TrainArguments& a) {
  OptimizerOptions optimizer = a.optimizing;
  optimizer.kind = parse_optimizer(a.optimizer, "--optimizer");
  optimizer.decay_all = !a.decay_weights_only;
  validate(optimizer);
  return optimizer;
}

// A cosine ends with the run, whose steps are known once the data is.
Schedule schedule_of(const TrainArguments& a, const RunOptions& options) {
  Schedule schedule = a.rates;
  schedule.kind = parse_schedule(a.schedule, "--schedule");
  if (schedule.kind == ScheduleKind::step && schedule.every == 0)
    raise<RequestError>("--schedule step: say after how many steps the rate drops, by --schedule-every N");
  if (schedule.kind == ScheduleKind::cosine) schedule.steps = steps_of(options);
  validate(schedule);
  return schedule;
}

// The same for all spellings of a path.
std::filesystem::path place_of(const std::string& path) {
  return std::filesystem::weakly_canonical(std::filesystem::absolute(path));
}

void check_files(const TrainArguments& a) {
  const std::array<std::pair<const char*, const std::string*>, 5> files = {{{"--weights", &a.weights},
                                                                            {"--metrics", &a.metrics},
                                                                            {"--trace", &a.trace},
                                                                            {"--checkpoint", &a.checkpoint},
                                                                            {"--plan", &a.plan}}};
  for (std::size_t i = 0; i < files.size(); ++i)
    for (std::size_t k = 0; k < i; ++k)
      if (!files[i].second->empty() && !files[k].second->empty() &&
          place_of(*files[i].second) == place_of(*files[k].second))
        raise<RequestError>("{} and {}: both name {}; give each a file of its own", files[k].first, files[i].first,
                            *files[i].second);
  if (!a.weights.empty()) naming("--weights", [&] { require_writable(a.weights); });
  if (!a.trace.empty()) naming("--trace", [&] { require_writable(a.trace); });
}

}  // namespace

void declare_options(CLI::App& app, TrainArguments& arguments) {
  declare_run(app, arguments);
  declare_plan(app, arguments);
  declare_optimizer(app, arguments);
  declare_results(app, arguments);
  for (const auto& [option, needed] : {std::pair{"--keep", "--checkpoint"},
                                       {"--checkpoint-every", "--checkpoint"},
                                       {"--resume", "--checkpoint"},
                                       {"--trace-steps", "--trace"},
                                       {"--trace-first", "--trace"}})
    app.get_option(option)->needs(needed);
  // A variable of the shell that is not set must not pass for an option that was not given.
  const CLI::Validator given([](const std::string& text) { return text.empty() ? "is empty" : std::string(); }, "");
  for (CLI::Option* option : app.get_options())
    if (option->get_items_expected_max() > 0) option->check(given);
}

Plan plan_of(const TrainArguments& a) {
  Plan plan = a.plan.empty() ? Plan{} : naming("--plan", [&] { return read_plan(a.plan); });
  if (!a.devices.empty()) plan.replicas = parse_devices(a.devices, "--devices");
  if (!a.route.empty()) plan.route = parse_route(a.route, "--route");
  if (!a.chunk.empty()) plan.chunk = parse_chunk_rule(a.chunk, "--chunk");
  if (!a.piece.empty()) plan.piece = parse_bytes(a.piece, "--piece");
  if (!a.update.empty()) plan.update = parse_update(a.update, "--update");
  if (!a.parameter_wire.empty()) plan.parameter_wire = parse_wire_format(a.parameter_wire, "--parameter-wire");
  if (!a.gradient_wire.empty()) {
    const WireFormat wire = parse_wire_format(a.gradient_wire, "--gradient-wire");
    if (wire != plan.gradient_wire) plan.error_feedback = wire == WireFormat::i8;
    plan.gradient_wire = wire;
  }
  if (!a.error_feedback.empty()) plan.error_feedback = parse_switch(a.error_feedback, "--error-feedback");
  plan.accumulate = a.accumulate.value_or(plan.accumulate);
  plan.reducers = a.reducers.value_or(plan.reducers);
  plan.preload = a.preload.value_or(plan.preload);
  if (a.plan.empty() || a.optimizing.clip_norm > 0) plan.clip = a.optimizing.clip_norm > 0;
  validate(plan);
  return plan;
}

TrainRequest request_of(const TrainArguments& a) {
  if ((a.epochs == 0) == (a.steps == 0))
    raise<RequestError>("--epochs or --steps: give one of them; {} given", a.epochs == 0 ? "none was" : "both were");
  check_files(a);
  ModelSpec model = parse_model(a.model, "--model");
  if (model.kind == ModelSpec::Kind::script && !std::filesystem::exists(model.path))
    raise<RequestError>("--model: there is no file {}; a model that ends in .pt or .ts is a TorchScript file",
                        model.path.string());
  if (a.classes != 0 && !takes_any_classes(model))
    raise<RequestError>("--classes: model {} has {} outputs; vision models and scripts take the option", a.model,
                        model.classes());
  if (!a.augment.empty() && needs_of(model).kind != InputKind::image)
    raise<RequestError>("--augment: model {} reads no images", a.model);
  RunOptions options{.plan = plan_of(a),
                     .batch_size = a.batch_size,
                     .epochs = a.epochs,
                     .steps = a.steps,
                     .threads_per_replica = a.threads_per_replica,
                     .optimizer = optimizer_of(a),
                     .precision = precision_of(a),
                     .label_smoothing = a.label_smoothing,
                     .image_size = a.image_size,
                     .seed = a.seed,
                     .initial_weights = a.initial_weights,
                     .weights = a.weights,
                     .digest = a.digest,
                     .checkpoint = {.directory = a.checkpoint, .keep = a.keep, .resume = a.resume},
                     .trace = a.traced,
                     .go_on_when_not_finite = a.allow_nonfinite,
                     .allow_nondeterministic = a.allow_nondeterministic};
  options.trace.file = a.trace;
  if (!a.checkpoint_every.empty()) parse_cadence(a.checkpoint_every, options.checkpoint);
  const AugmentOptions augmentation = parse_augment(a.augment, a.seed);
  options.data = naming("--data", [&] { return open_dataset(a.data, open_options(a, model)); });
  if (!a.augment.empty())
    options.data.train = naming("--augment", [&] { return augment(options.data.train, augmentation); });
  options.schedule = schedule_of(a, options);
  if (needs_of(model).channels == 3)
    model = model.with_classes(a.classes != 0 ? a.classes : options.data.train->classes());
  return {std::move(model), std::move(options)};
}

}  // namespace sumpter::cli
