#include "train/job.h"

#include <array>

#include "base/error.h"
#include "base/file.h"
#include "spec/optimizer.h"
#include "spec/plan.h"
#include "train/script.h"
#include "train/user_network.h"
#include "train/weights.h"

namespace sumpter {
namespace {

void check_length(const RunOptions& options) {
  if ((options.epochs == 0) == (options.steps == 0))
    raise<RequestError>("a run has a number of epochs or a number of steps: {} epochs and {} steps were given",
                        options.epochs, options.steps);
  if (options.batch_size == 0) raise<RequestError>("batch size: 0 rows; the smallest is 1");
  if (options.threads_per_replica < 1)
    raise<RequestError>("threads per replica: {} were given; the smallest number is 1", options.threads_per_replica);
}

void check_plan(const RunOptions& options) {
  const Plan& plan = options.plan;
  validate(plan);
  const bool lossy = plan.gradient_wire != WireFormat::f32 || plan.parameter_wire != WireFormat::f32;
  if (lossy && options.precision == Precision::float64)
    raise<RequestError>("gradient_wire {}, parameter_wire {}: float64 travels as it is; both must be f32",
                        name_of(plan.gradient_wire), name_of(plan.parameter_wire));
  if (plan.clip != (options.optimizer.clip_norm > 0))
    raise<RequestError>("clip: the plan says {} and the norm to clip at is {:g}; set both or neither", plan.clip,
                        options.optimizer.clip_norm);
}

void check_files(const RunOptions& options) {
  const CheckpointOptions& checkpoint = options.checkpoint;
  for (const auto& file : {options.weights, options.trace.file})
    if (!file.empty()) require_writable(file);
  if (checkpoint.directory.empty() &&
      (checkpoint.resume || checkpoint.every_steps != 0 || checkpoint.every_time.count() != 0))
    raise<RequestError>("checkpoints were asked for and no directory for them was given");
  if (checkpoint.keep < 1) raise<RequestError>("checkpoints to keep: {}; the smallest number is 1", checkpoint.keep);
}

// A hash of the file: another one of the same name is another model.
std::string content_of(const std::filesystem::path& file) {
  const std::string content = read_file(file);
  return digest(std::array{bytes_array("file", std::as_bytes(std::span(content)))});
}

}  // namespace

void check(const RunOptions& options) {
  check_length(options);
  check_plan(options);
  validate(options.optimizer);
  validate(options.schedule);
  if (!(options.label_smoothing >= 0 && options.label_smoothing <= 1))
    raise<RequestError>("label smoothing: {:g} is out of range, which is 0 to 1", options.label_smoothing);
  if (options.data.train == nullptr || options.data.train->size() == 0)
    raise<RequestError>("there is no data to train on");
  if (options.data.test != nullptr && options.data.test->shape() != options.data.train->shape())
    raise<RequestError>("the test set's rows have another shape than those to train on");
  check_files(options);
}

Job job_of(const ModelSpec& model, const RunOptions& options) {
  for (const auto& data : {options.data.train, options.data.test})
    if (data != nullptr) check_input(model, data->shape(), data->classes(), options.image_size);
  const bool script = model.kind == ModelSpec::Kind::script;
  if (script && options.plan.replicas > 1 && !options.allow_nondeterministic && draws_random_numbers(model.path))
    raise<RequestError>(
        "{}: its graph draws random numbers (dropout), which {} replicas of one process would take from "
        "one generator in an order that changes from run to run: train it on cpu:1, or give "
        "--allow-nondeterministic",
        model.path.string(), options.plan.replicas);
  nlohmann::ordered_json facts = {{"name", script ? "TorchScript" : model.name}, {"classes", model.classes()}};
  if (script && !options.checkpoint.directory.empty()) facts["content"] = content_of(model.path);
  return {.make_network =
              [model, network = NetworkOptions{.seed = options.seed,
                                               .precision = options.precision,
                                               .loss = {.label_smoothing = options.label_smoothing}}] {
                return make_network(model, network);
              },
          .input = input_options(model, options.data.train->type(), options.image_size, options.precision),
          .default_generator = script,
          .facts = std::move(facts)};
}

Job job_of(const ModelFactory& factory, const LossFunction& loss, const RunOptions& options) {
  if (!factory) raise<RequestError>("the trainer has no factory that makes its model");
  const bool images = options.data.train->type() == ElementType::u8;
  return {.make_network =
              [factory, network = UserNetworkOptions{.loss = loss,
                                                     .label_smoothing = options.label_smoothing,
                                                     .precision = options.precision}] {
                return make_user_network(factory(), network);
              },
          .input = {.kind = images ? InputKind::image : InputKind::raw,
                    .channels = 0,
                    .image_size = options.image_size,
                    .precision = options.precision},
          .default_generator = true,
          .may_try = false,
          .facts = {{"name", "module"}}};
}

}  // namespace sumpter
