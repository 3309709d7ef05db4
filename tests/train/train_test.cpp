#include "train/train.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <functional>
#include <numeric>

#include "base/error.h"
#include "input/synthetic.h"

namespace sumpter {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();

// Synthetic images, of which one cannot be read.
class Damaged : public Dataset {
 public:
  Damaged(std::size_t rows, std::size_t item)
      : inner_(make_synthetic({.rows = rows, .shape = {1, 28, 28}, .seed = 11})), item_(item) {}
  std::size_t size() const override { return inner_->size(); }
  ImageShape shape() const override { return inner_->shape(); }
  int classes() const override { return inner_->classes(); }
  std::int64_t get(const Item& item, std::span<std::uint8_t> image) const override {
    if (item.index == item_) raise<DataError>("the item is damaged");
    return inner_->get(item, image);
  }

 private:
  std::shared_ptr<const Dataset> inner_;
  std::size_t item_;
};

struct Asked : RunOptions {
  ModelSpec model;
};

class Recorder : public TrainListener {
 public:
  void stepped(const StepReport& report) override {
    steps.push_back(report);
    if (on_step) on_step(report);
  }
  void evaluated(const Evaluation& evaluation) override { evaluations.push_back(evaluation); }

  std::vector<StepReport> steps;
  std::vector<Evaluation> evaluations;
  std::function<void(const StepReport&)> on_step;
};

Asked small_run(int replicas, std::size_t rows = 128, std::size_t batch_size = 32) {
  Asked options;
  options.model = parse_model("lenet", "model");
  options.data.train = std::make_shared<Damaged>(rows, kNever);
  options.plan.replicas = replicas;
  options.batch_size = batch_size;
  options.steps = 4;
  options.optimizer = {.learning_rate = 0.05, .momentum = 0.9, .weight_decay = 1e-4};
  options.digest = true;
  return options;
}

RunResult run(const Asked& options, Recorder& recorder) {
  const std::atomic<bool> stop = false;
  return train(options.model, options, recorder, stop);
}
RunResult run(const Asked& options) {
  Recorder recorder;
  return run(options, recorder);
}

// What train() throws, with its message.
template <typename E>
std::string failure_of(const Asked& options) {
  try {
    run(options);
  } catch (const E& error) {
    return error.what();
  }
  return "";
}

std::vector<StepReport> steps_of(const Asked& options) {
  Recorder recorder;
  run(options, recorder);
  return recorder.steps;
}

void expect_like_one_replica(Asked options) {
  const std::vector<StepReport> several = steps_of(options);
  options.plan.replicas = 1;
  const std::vector<StepReport> one = steps_of(options);
  ASSERT_EQ(several.size(), one.size());
  for (std::size_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(several[i].rows, one[i].rows);
    EXPECT_NEAR(several[i].loss, one[i].loss, 1e-4) << "step " << i;
  }
}

TEST(Train, LossOfEachStepIsThatOfOneReplica) {
  Asked options = small_run(4);
  options.steps = 12;
  expect_like_one_replica(options);
}

TEST(Train, LearnsAndEvaluates) {
  Asked options = small_run(2, 256);
  options.data.test = make_synthetic({.rows = 301, .shape = {1, 28, 28}, .seed = 11, .first_item = 256});
  options.steps = 0;
  options.epochs = 3;
  Recorder recorder;
  const RunResult result = run(options, recorder);
  EXPECT_EQ(result.steps, 24U);
  EXPECT_EQ(result.rows, 3 * 256U);
  ASSERT_THAT(recorder.evaluations, SizeIs(3));
  EXPECT_EQ(recorder.evaluations[0].step, 8U);
  EXPECT_EQ(recorder.evaluations[2].epoch, 2U);
  EXPECT_EQ(recorder.evaluations[2].rows, 301U);
  EXPECT_GT(recorder.evaluations[2].top1, 0.5) << "ten classes";
  EXPECT_LT(recorder.evaluations[2].loss, recorder.evaluations[0].loss);
  EXPECT_EQ(result.evaluation->top1, recorder.evaluations[2].top1);
}

TEST(Train, EvaluationDoesNotDependOnTheReplicas) {
  Recorder one, three;
  for (const auto& [replicas, recorder] : {std::pair{1, &one}, std::pair{3, &three}}) {
    Asked options = small_run(replicas);
    options.data.test = make_synthetic({.rows = 100, .shape = {1, 28, 28}, .seed = 11, .first_item = 128});
    options.optimizer.learning_rate = 0;  // the model stays as the seed made it
    run(options, *recorder);
  }
  EXPECT_EQ(one.evaluations[0].top1, three.evaluations[0].top1);
  EXPECT_NEAR(one.evaluations[0].loss, three.evaluations[0].loss, 1e-5);
}

// Every option that should leave the result alone, and a counter that shows that it acted.
TEST(Train, DigestIsTheSameForEveryPlan) {
  const auto with = [](const std::function<void(Plan&)>& change) {
    Asked options = small_run(4);
    change(options.plan);
    return run(options);
  };
  const RunResult usual = with([](Plan&) {});
  EXPECT_THAT(usual.digest, SizeIs(32));
  const RunResult fine = with([](Plan& plan) { plan.chunk = {ChunkRule::Kind::layers, 1}; });
  EXPECT_EQ(fine.digest, usual.digest);
  EXPECT_EQ(fine.chunks_per_step, 4U);
  EXPECT_EQ(fine.chunks, 16U);
  const RunResult whole = with([](Plan& plan) { plan.chunk = {ChunkRule::Kind::all, 0}; });
  EXPECT_EQ(whole.digest, usual.digest);
  EXPECT_EQ(whole.chunks_per_step, 1U);
  const RunResult small = with([](Plan& plan) { plan.piece = 4096; });
  EXPECT_EQ(small.digest, usual.digest);
  EXPECT_GT(small.pieces, 10 * usual.pieces);
  const RunResult helped = with([](Plan& plan) { plan.reducers = 2; });
  EXPECT_EQ(helped.digest, usual.digest);
  EXPECT_THAT(helped.pieces_of_reducers, SizeIs(2));
  EXPECT_THAT(usual.pieces_of_reducers, SizeIs(0));
  EXPECT_THAT(usual.pieces_of_replicas, SizeIs(4));
  const RunResult loaded = with([](Plan& plan) { plan.preload = 0; });
  EXPECT_EQ(loaded.digest, usual.digest);
  EXPECT_EQ(loaded.most_batches_ready, 0U);
  EXPECT_EQ(with([](Plan& plan) { plan.update = Update::host; }).digest, usual.digest);
  EXPECT_EQ(with([](Plan& plan) {
              plan = {.replicas = 4,
                      .chunk = {ChunkRule::Kind::layers, 2},
                      .piece = 64,
                      .update = Update::host,
                      .preload = 3,
                      .reducers = 1};
            }).digest,
            usual.digest);
}

TEST(Train, DigestDependsOnTheSeed) {
  Asked options = small_run(2);
  const std::string first = run(options).digest;
  options.seed = 1;
  EXPECT_NE(run(options).digest, first);
}

TEST(Train, ReplicasWithoutRowsTakePart) {
  for (const Update update : {Update::device, Update::host}) {
    Asked last_of_three = small_run(4, 35, 16);  // 16, 16, 3
    last_of_three.steps = 6;
    last_of_three.plan.update = update;
    expect_like_one_replica(last_of_three);
    Asked nine = small_run(4, 9, 9);
    nine.plan.update = update;
    expect_like_one_replica(nine);
    Asked tiny_epoch = small_run(4, 2, 32);
    tiny_epoch.plan.update = update;
    expect_like_one_replica(tiny_epoch);
  }
}

TEST(Train, DamagedItemComesOutWithItsNumber) {
  for (const int preload : {0, 2}) {
    Asked options = small_run(3);
    options.data.train = std::make_shared<Damaged>(128, 100);
    options.plan.preload = preload;
    EXPECT_THAT(failure_of<DataError>(options), testing::AllOf(HasSubstr("100"), HasSubstr("the item is damaged")));
  }
  Asked testing_fails = small_run(3);
  testing_fails.data.test = std::make_shared<Damaged>(128, 100);
  EXPECT_THAT(failure_of<DataError>(testing_fails), HasSubstr("the item is damaged"));
}

TEST(Train, LossThatIsNotFiniteEndsTheRunWithoutWeights) {
  Asked options = small_run(4);
  options.optimizer.learning_rate = 1e30;
  options.steps = 50;
  options.weights = std::filesystem::temp_directory_path() / ("sumpter-nan-" + std::to_string(getpid()));
  Recorder recorder;
  try {
    run(options, recorder);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("the loss of step " + std::to_string(recorder.steps.size() - 1)));
    EXPECT_THAT(error.what(), HasSubstr("smaller learning rate"));
  }
  EXPECT_LT(recorder.steps.size(), 50U);
  EXPECT_FALSE(std::isfinite(recorder.steps.back().loss));
  EXPECT_FALSE(std::filesystem::exists(options.weights));
}

TEST(Train, GoesOnWithALossThatIsNotFiniteWhereThatIsWanted) {
  Asked options = small_run(2);
  options.optimizer.learning_rate = 1e30;
  options.steps = 8;
  options.go_on_when_not_finite = true;
  Recorder recorder;
  EXPECT_EQ(run(options, recorder).steps, 8U);
  EXPECT_FALSE(std::isfinite(recorder.steps.back().loss));
}

// Row 12 of what has bitten users, for the trainer: parts of unequal sizes, some without rows.
TEST(Train, PartsOfABatchAddUpToIt) {
  for (const int parts : {2, 3, 7}) {
    Asked whole = small_run(2, 64, 22), cut = whole;
    cut.plan.accumulate = parts;
    const std::vector<StepReport> expected = steps_of(whole), found = steps_of(cut);
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(found[i].loss, expected[i].loss, 1e-4) << parts;
    EXPECT_EQ(run(cut).chunks, run(whole).chunks) << "one exchange a step";
  }
}

TEST(Train, ReportsTheNormThatItClipsAtAndTheRate) {
  Asked options = small_run(2);
  options.optimizer.clip_norm = 0.25;
  options.plan.clip = true;
  options.schedule = {.kind = ScheduleKind::step, .every = 2, .gamma = 0.5};
  const std::vector<StepReport> steps = steps_of(options);
  for (const StepReport& step : steps) EXPECT_GT(step.gradient_norm, 0);
  EXPECT_DOUBLE_EQ(steps[1].learning_rate, 0.05);
  EXPECT_DOUBLE_EQ(steps[2].learning_rate, 0.025);
}

// 431,080 parameters of float32; with update=host there is one set of them and of the momentum, whatever the replicas.
TEST(Train, TellsItsMemoryBeforehand) {
  constexpr std::size_t kBytes = 431'080 * sizeof(float);
  Asked options = small_run(3);
  const Footprint device = run(options).memory;
  EXPECT_EQ(device.parameters, kBytes);
  EXPECT_EQ(device.gradients, kBytes);
  EXPECT_EQ(device.optimizer, kBytes);
  EXPECT_EQ(device.shared, 0U);
  EXPECT_EQ(device.replicas, 3);
  EXPECT_GT(device.arena, 0U);
  EXPECT_GE(device.input, 3 * 32 * 28 * 28U);
  options.plan.update = Update::host;
  const RunResult host = run(options);
  EXPECT_EQ(host.memory.parameters, 0U);
  EXPECT_EQ(host.memory.optimizer, 0U);
  EXPECT_EQ(host.memory.shared, 2 * kBytes);
  ASSERT_TRUE(host.memory.activations.has_value());
  const std::size_t said = host.memory.gradients + *host.memory.activations;
  EXPECT_GE(host.step_memory, kBytes);
  EXPECT_LE(host.step_memory, said + said / 4 + (1 << 20));
}

// The wish is seen when the next step is begun, and that one is still finished.
TEST(Train, StopsAfterTheStepUnderWay) {
  Asked options = small_run(3);
  options.steps = 1000;
  options.data.test = options.data.train;
  std::atomic<bool> stop = false;
  Recorder recorder;
  recorder.on_step = [&](const StepReport& report) { stop = report.step >= 2; };
  const RunResult result = train(options.model, options, recorder, stop);
  EXPECT_TRUE(result.stopped);
  EXPECT_EQ(result.steps, 4U);
  EXPECT_FALSE(result.evaluation.has_value());
  EXPECT_THAT(result.digest, SizeIs(32));
}

TEST(Train, ListenersErrorComesOutWithTheReplica) {
  Recorder recorder;
  recorder.on_step = [](const StepReport& report) {
    if (report.step == 1) throw std::runtime_error("enough");
  };
  try {
    run(small_run(4), recorder);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "replica 0: enough");
  }
}

TEST(Train, RefusesWhatDoesNotFitBeforeItBegins) {
  const auto refusal_of = [](const std::function<void(Asked&)>& change) {
    Asked options = small_run(2);
    change(options);
    return failure_of<RequestError>(options);
  };
  EXPECT_THAT(refusal_of([](auto& o) { o.plan.parameter_wire = WireFormat::bf16; }), HasSubstr("parameter_wire"));
  EXPECT_THAT(refusal_of([](auto& o) { o.plan.clip = true; }), HasSubstr("clip: the plan says true"));
  EXPECT_THAT(refusal_of([](auto& o) { o.plan.chunk = {ChunkRule::Kind::layers, 5}; }), HasSubstr("the model has 4"));
  EXPECT_THAT(refusal_of([](auto& o) { o.optimizer.beta2 = 1.5; }), HasSubstr("beta2"));
  EXPECT_THAT(refusal_of([](auto& o) { o.schedule.kind = ScheduleKind::step; }), HasSubstr("every"));
  EXPECT_THAT(refusal_of([](auto& o) { o.label_smoothing = 2; }), HasSubstr("label smoothing"));
  EXPECT_THAT(refusal_of([](auto& o) { o.checkpoint.resume = true; }), HasSubstr("no directory"));
  EXPECT_THAT(refusal_of([](auto& o) {
                o.precision = Precision::float64;
                o.plan.gradient_wire = WireFormat::bf16;
              }),
              HasSubstr("float64 travels as it is"));
  EXPECT_THAT(refusal_of([](auto& o) { o.epochs = 1; }), HasSubstr("1 epochs and 4 steps"));
  EXPECT_THAT(refusal_of([](auto& o) { o.steps = 0; }), HasSubstr("0 epochs and 0 steps"));
  EXPECT_THAT(refusal_of([](auto& o) { o.batch_size = 0; }), HasSubstr("batch size"));
  EXPECT_THAT(refusal_of([](auto& o) { o.threads_per_replica = 0; }), HasSubstr("threads per replica"));
  EXPECT_THAT(refusal_of([](auto& o) { o.plan.replicas = 65; }), HasSubstr("replicas"));
  EXPECT_THAT(refusal_of([](auto& o) { o.data.train = nullptr; }), HasSubstr("no data"));
  EXPECT_THAT(refusal_of([](auto& o) { o.model = parse_model("mlp60m", "model"); }), HasSubstr("takes 3072 values"));
  EXPECT_THAT(refusal_of([](auto& o) { o.weights = "/nowhere/at/all"; }), HasSubstr("does not exist"));
}

}  // namespace
}  // namespace sumpter
