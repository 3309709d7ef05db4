#include "train/snapshot.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "input/item.h"

namespace sumpter {
namespace {

constexpr std::string_view kOptimizer = "optimizer.", kDown = "feedback.down.";
constexpr std::string_view kGenerator = "random.generator";

ElementType type_of(const torch::Tensor& tensor, std::string_view name) {
  switch (tensor.scalar_type()) {
    case torch::kFloat32:
      return ElementType::f32;
    case torch::kFloat64:
      return ElementType::f64;
    case torch::kHalf:
      return ElementType::f16;
    case torch::kBFloat16:
      return ElementType::bf16;
    case torch::kInt8:
      return ElementType::i8;
    case torch::kInt16:
      return ElementType::i16;
    case torch::kInt64:
      return ElementType::i64;
    case torch::kInt32:
      return ElementType::i32;
    case torch::kUInt8:
      return ElementType::u8;
    case torch::kBool:
      return ElementType::boolean;
    default:
      raise<RequestError>("'{}' of the model has type {}, which no weights file and no checkpoint can hold", name,
                          torch::toString(tensor.scalar_type()));
  }
}

std::vector<std::int64_t> shape_of(const torch::Tensor& tensor) {
  return {tensor.sizes().begin(), tensor.sizes().end()};
}

NamedArray array_of(std::string name, const torch::Tensor& tensor) {
  const auto type = type_of(tensor, name);
  return {std::move(name),
          type,
          shape_of(tensor),
          {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()}};
}

TargetArray target_of(std::string name, const torch::Tensor& tensor) {
  const auto type = type_of(tensor, name);
  return {
      std::move(name), type, shape_of(tensor), {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()}};
}

std::size_t bytes_of(const StateArray& array) {
  std::size_t bytes = size_of(array.type);
  for (const std::int64_t side : array.shape) bytes *= static_cast<std::size_t>(side);
  return bytes;
}

// All replicas have the same optimizer's state and the same feedback of what returns, and each its own of what it
// sends.
bool is_shared(const std::string& name) { return name.starts_with(kOptimizer) || name.starts_with(kDown); }

// What a replica's array is called in the file.
std::string name_in_file(const std::string& name, int rank) {
  return is_shared(name) ? name : fmt::format("replica.{}.{}", rank, name);
}

std::vector<TargetArray> targets_of(const std::vector<StateArray>& arrays, int rank) {
  std::vector<TargetArray> targets;
  for (const StateArray& array : arrays)
    targets.push_back({name_in_file(array.name, rank),
                       array.type,
                       array.shape,
                       {static_cast<std::byte*>(array.data), bytes_of(array)}});
  return targets;
}

// The tensors of the first network, each with where its true value lies.
std::vector<TargetArray> weight_targets(Run& run) {
  std::vector<TargetArray> targets;
  std::size_t parameter = 0;
  for (const NamedTensor& entry : run.networks.front()->state()) {
    targets.push_back(target_of(entry.name, entry.tensor));
    if (!entry.trains) continue;
    if (run.options.plan.update == Update::host)
      targets.back().bytes = {static_cast<std::byte*>(run.context->parameter(parameter)), entry.tensor.nbytes()};
    ++parameter;
  }
  return targets;
}

void load_weights(Run& run, const SafetensorsFile& file, const std::filesystem::path& origin) {
  restore(file, weight_targets(run), origin, Surplus::refused);
  if (run.options.plan.update == Update::host) run.context->refresh();
  unify(run.networks, run.options.plan.update);
}

// A few rows and labels, spread over the set, as a hash: another set of the same size and shape is noticed.
std::string sample_of(const Dataset& data) {
  constexpr std::size_t kSampled = 16;
  const std::size_t rows = std::min(data.size(), kSampled), row_bytes = data.image_bytes();
  std::vector<std::uint8_t> bytes(rows * row_bytes);
  std::vector<std::int64_t> labels;
  for (std::size_t i = 0; i < rows; ++i)
    labels.push_back(
        read_item(data, {.index = i * data.size() / rows}, std::span(bytes).subspan(i * row_bytes, row_bytes)));
  const std::array arrays = {bytes_array("rows", std::as_bytes(std::span(bytes))),
                             bytes_array("labels", std::as_bytes(std::span(labels)))};
  return digest(arrays);
}

nlohmann::ordered_json plain_facts_of(const Run& run) {
  const RunOptions& options = run.options;
  const OptimizerOptions& optimizer = options.optimizer;
  const Schedule& schedule = options.schedule;
  const ImageShape shape = options.data.train->shape();
  constexpr std::array kPrecisions = {"float32", "float64", "bf16"};
  return {{"model", run.job.facts},
          {"data",
           {{"content", sample_of(*options.data.train)},
            {"rows", options.data.train->size()},
            {"shape", fmt::format("{}x{}x{}", shape.channels, shape.height, shape.width)},
            {"image_size", options.image_size}}},
          {"batch_size", options.batch_size},
          {"seed", options.seed},
          {"precision", kPrecisions.at(static_cast<std::size_t>(options.precision))},
          {"label_smoothing", options.label_smoothing},
          {"threads_per_replica", options.threads_per_replica},
          {"optimizer",
           {{"kind", name_of(optimizer.kind)},
            {"learning_rate", optimizer.learning_rate},
            {"momentum", optimizer.momentum},
            {"nesterov", optimizer.nesterov},
            {"weight_decay", optimizer.weight_decay},
            {"decay_all", optimizer.decay_all},
            {"beta1", optimizer.beta1},
            {"beta2", optimizer.beta2},
            {"epsilon", optimizer.epsilon},
            {"clip_norm", optimizer.clip_norm}}},
          {"schedule",
           {{"kind", name_of(schedule.kind)},
            {"warmup", schedule.warmup},
            {"every", schedule.every},
            {"gamma", schedule.gamma},
            {"steps", schedule.steps},
            {"least", schedule.least}}},
          {"plan",
           {{"replicas", options.plan.replicas},
            {"gradient_wire", name_of(options.plan.gradient_wire)},
            {"parameter_wire", name_of(options.plan.parameter_wire)},
            {"error_feedback", options.plan.error_feedback},
            {"accumulate", options.plan.accumulate}}}};
}

}  // namespace

nlohmann::ordered_json facts_of(const Run& run) {
  nlohmann::ordered_json facts = plain_facts_of(run);
  // Where a lossy gradient returns, its sum is rounded once more, and what that loses is kept.
  if (run.options.plan.gradient_wire != WireFormat::f32) facts["plan"]["update"] = name_of(run.options.plan.update);
  return facts;
}

std::vector<NamedArray> weights_of(Run& run, const ReplicaExtras& extras) {
  std::vector<NamedArray> arrays;
  std::size_t buffer = 0;
  const std::vector<TargetArray> targets = weight_targets(run);
  const std::vector<NamedTensor> state = run.networks.front()->state();
  for (std::size_t i = 0; i < state.size(); ++i) {
    arrays.push_back({targets[i].name, targets[i].type, targets[i].shape, targets[i].bytes});
    if (state[i].buffer) arrays.back() = array_of(state[i].name, extras.buffers[buffer++].tensor);
  }
  return arrays;
}

bool has_finite_weights(const Run& run) {
  return std::ranges::all_of(trained(*run.networks.front()), [](const NamedTensor& parameter) {
    return parameter.tensor.detach().isfinite().all().item<bool>();
  });
}

bool save_checkpoint(Run& run, std::uint64_t steps, bool best) {
  if (!has_finite_weights(run)) {  // a loss can still be finite whose update was not
    log::warning("no checkpoint after step {}: its update left parameters that are not finite", steps - 1);
    return false;
  }
  const std::vector<NamedArray> weights = weights_of(run, run.snapshots.front().extras);
  std::vector<NamedArray> state;
  const auto add = [&](const std::vector<StateArray>& arrays, int rank) {
    for (const StateArray& array : arrays)
      if (rank == 0 || !is_shared(array.name))
        state.push_back({name_in_file(array.name, rank),
                         array.type,
                         array.shape,
                         {static_cast<const std::byte*>(array.data), bytes_of(array)}});
  };
  add(run.context->state(), 0);
  for (std::size_t rank = 0; rank < run.snapshots.size(); ++rank) {
    const ReplicaSnapshot& replica = run.snapshots[rank];
    add(replica.step, static_cast<int>(rank));
    if (rank == 0) continue;
    for (const NamedTensor& buffer : replica.extras.buffers)
      state.push_back(array_of(fmt::format("replica.{}.buffer.{}", rank, buffer.name), buffer.tensor));
  }
  const auto& generator = run.snapshots.front().extras.generator;
  if (generator) state.push_back(array_of(std::string(kGenerator), *generator));

  nlohmann::ordered_json progress = {{"steps", steps},
                                     {"rows", run.result.rows},
                                     {"loss", run.result.loss},
                                     {"evaluated", run.result.evaluation.has_value()}};
  if (run.result.best)
    progress["best"] = {{"step", run.result.best->step},
                        {"epoch", run.result.best->epoch},
                        {"rows", run.result.best->rows},
                        {"loss", run.result.best->loss},
                        {"top1", run.result.best->top1}};
  const std::filesystem::path written = run.checkpoints->write(
      {.step = steps, .weights = weights, .state = state, .facts = run.facts, .progress = std::move(progress)}, best);
  run.listener.saved(written, steps);
  return true;
}

void load_initial_weights(Run& run, const std::filesystem::path& file) {
  try {
    load_weights(run, SafetensorsFile::read(file), file);
  } catch (const Error& error) {
    raise<RequestError>("weights to begin from: {}", error.what());
  }
}

void restore_shared(Run& run, const LoadedCheckpoint& loaded) {
  require_same(loaded.facts, run.facts, loaded.directory);
  load_weights(run, loaded.weights, loaded.directory);
  restore(loaded.state, targets_of(run.context->state(), 0), loaded.directory, Surplus::allowed);
  run.result.loss = loaded.progress.value("loss", 0.0);
  if (const auto best = loaded.progress.find("best"); best != loaded.progress.end())
    run.result.best = Evaluation{.step = best->at("step"),
                                 .epoch = best->at("epoch"),
                                 .rows = best->at("rows"),
                                 .loss = best->at("loss"),
                                 .top1 = best->at("top1")};
}

void restore_replica(const LoadedCheckpoint& loaded, int rank, Network& network, ReplicaStep& step,
                     bool default_generator) {
  std::vector<TargetArray> targets = targets_of(step.state(), rank);
  if (rank != 0) {
    for (const NamedTensor& entry : network.state())
      if (entry.buffer)
        targets.push_back(target_of(fmt::format("replica.{}.buffer.{}", rank, entry.name), entry.tensor));
  }
  torch::Tensor generator;
  if (default_generator && rank == 0) {
    generator = generator_state();
    targets.push_back(target_of(std::string(kGenerator), generator));
  }
  restore(loaded.state, targets, loaded.directory, Surplus::allowed);
  if (generator.defined()) set_generator_state(generator);
}

}  // namespace sumpter
