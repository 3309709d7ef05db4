#include "train/footprint.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "base/log.h"
#include "base/units.h"
#include "input/split.h"
#include "train/memory.h"
#include "train/run.h"

namespace sumpter {
namespace {

// Bytes that a forward and backward of so many rows hold at their peak, gradients included.
std::size_t held_by(const Run& run, Network& network, std::size_t rows) {
  const Dataset& data = *run.options.data.train;
  const std::vector<std::uint8_t> zeros(rows * data.image_bytes());
  const std::vector<std::int64_t> labels(rows);
  const MemoryWatch watch;
  const Inputs inputs =
      to_inputs({.images = zeros, .labels = labels, .shape = data.shape(), .type = data.type()}, run.job.input);
  network.loss(inputs.values, inputs.labels).backward();
  for (const NamedTensor& parameter : trained(network)) parameter.tensor.mutable_grad().reset();
  return watch.peak();
}

// Of a part of a replica's rows, by the straight line through two small numbers of rows, with a network that is made
// for it: a forward may change more than can be put back. None where the model takes no rows of zeros: the first step
// will say why.
std::optional<std::size_t> predicted_held(const Run& run) {
  if (!run.job.may_try) return std::nullopt;
  constexpr std::size_t kFew = 2, kMore = 4;
  const auto part_of = [](std::size_t rows, int parts) {
    return split_rows(rows, static_cast<std::size_t>(parts), 0).rows;
  };
  const std::size_t batch = std::min(run.options.batch_size, run.options.data.train->size());
  const std::size_t rows = part_of(part_of(batch, run.options.plan.replicas), run.options.plan.accumulate);
  at::set_num_threads(run.options.threads_per_replica);
  const torch::Tensor generator = generator_state();
  std::optional<std::size_t> held;
  try {
    const std::unique_ptr<Network> network = run.job.make_network();
    held_by(run, *network, std::min(rows, kFew));  // the first use of a kernel allocates what it keeps
    const std::size_t few = held_by(run, *network, std::min(rows, kFew));
    held = few;
    if (rows > kFew) {
      const std::size_t more = std::max(few, held_by(run, *network, std::min(rows, kMore)));
      held = few + (more - few) * (rows - kFew) / (std::min(rows, kMore) - kFew);
    }
  } catch (const std::exception&) {
    held.reset();
  }
  set_generator_state(generator);
  return held;
}

}  // namespace

Footprint footprint_of(const Run& run) {
  const Plan& plan = run.options.plan;
  const OptimizerOptions& optimizer = run.options.optimizer;
  std::size_t trained_bytes = 0, other_bytes = 0, largest = 0;
  for (const NamedTensor& entry : run.networks.front()->state()) {
    (entry.trains ? trained_bytes : other_bytes) += entry.tensor.nbytes();
    if (entry.trains) largest = std::max(largest, entry.tensor.nbytes());
  }
  const bool adam = optimizer.kind != OptimizerKind::sgd;
  const std::size_t optimizer_bytes = adam ? 2 * trained_bytes : (optimizer.momentum != 0 ? trained_bytes : 0);
  const bool host = plan.update == Update::host;

  Footprint footprint{.parameters = other_bytes + (host ? 0 : trained_bytes),
                      .gradients = trained_bytes,
                      .optimizer = host ? 0 : optimizer_bytes,
                      .feedback = plan.error_feedback ? trained_bytes * (host ? 1 : 2) : 0,
                      .shared = host ? trained_bytes + optimizer_bytes : 0,
                      .input = run.ring.bytes(),
                      .arena = run.group.arena_bytes(),
                      .replicas = plan.replicas};
  if (plan.parameter_wire != WireFormat::f32) footprint.shared += trained_bytes;
  if (const auto held = predicted_held(run)) {
    footprint.activations = *held - std::min(*held, trained_bytes);
    if (plan.accumulate > 1) *footprint.activations += largest;  // a gradient beside the one that it is added to
  }
  return footprint;
}

void check_footprint(Run& run, std::size_t held) {
  run.result.step_memory = held;
  const Footprint& said = run.result.memory;
  if (!said.activations) return;
  const std::size_t expected = said.gradients + *said.activations;
  if (held <= expected + expected / 4 + kMiB) return;
  log::warning("the first step of replica 0 held {} of gradients and activations, and {} were expected: leave room",
               describe_bytes(static_cast<double>(held)), describe_bytes(static_cast<double>(expected)));
}

}  // namespace sumpter
