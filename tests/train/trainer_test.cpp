#include "sumpter/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>

#include <atomic>
#include <cstring>

#include "sumpter/error.h"

namespace sumpter {
namespace {

using testing::HasSubstr;

// y = 3x - 1 as float rows of two numbers: x, and the y that the loss looks for.
class Line : public Dataset {
 public:
  std::size_t size() const override { return 64; }
  ImageShape shape() const override { return {.channels = 1, .height = 1, .width = 2}; }
  ElementType type() const override { return ElementType::f32; }
  int classes() const override { return 1; }
  std::int64_t get(const Item& item, std::span<std::uint8_t> image) const override {
    const float x = static_cast<float>(item.index) / 32 - 1;
    const std::array<float, 2> row = {x, 3 * x - 1};
    std::memcpy(image.data(), row.data(), sizeof(row));
    return 0;
  }
};

// Returns prediction and target side by side, so that the loss has both.
struct Fit : torch::nn::Module {
  torch::Tensor forward(torch::Tensor rows) {
    const torch::Tensor flat = rows.flatten(1);
    return torch::cat({line->forward(flat.narrow(1, 0, 1)), flat.narrow(1, 1, 1)}, 1);
  }
  torch::nn::Linear line = register_module("line", torch::nn::Linear(1, 1));
};

torch::Tensor squared_error(const torch::Tensor& outputs, const torch::Tensor& /*labels*/) {
  return (outputs.select(1, 0) - outputs.select(1, 1)).square().mean();
}

RunOptions small_run(int replicas) {
  RunOptions options{.data = {.train = std::make_shared<Line>(), .test = nullptr}, .batch_size = 16, .steps = 200};
  options.plan.replicas = replicas;
  options.optimizer = {.learning_rate = 0.1, .momentum = 0.9};
  options.digest = true;
  return options;
}

TEST(Trainer, FitsWithAModuleALossAndDataOfOnesOwn) {
  for (const Update update : {Update::device, Update::host}) {
    RunOptions options = small_run(3);
    options.plan.update = update;
    Trainer trainer(factory_of<Fit>(), squared_error, options);
    std::uint64_t steps = 0;
    trainer.on_step([&](const StepReport& report) { steps += report.rows == 16 ? 1 : 0; });
    trainer.run();
    EXPECT_EQ(steps, 200U);
    const auto fit = std::dynamic_pointer_cast<Fit>(trainer.module());
    ASSERT_NE(fit, nullptr);
    EXPECT_NEAR(fit->line->weight.item<float>(), 3, 1e-4);
    EXPECT_NEAR(fit->line->bias.item<float>(), -1, 1e-4);
  }
}

TEST(Trainer, RunsAgainFromTheSameNumbers) {
  Trainer trainer(factory_of<Fit>(), squared_error, small_run(2));
  const std::string first = trainer.run().digest;
  EXPECT_EQ(trainer.run().digest, first);
}

// What user code throws on one replica ends all of them, and says which.
TEST(Trainer, ExceptionsComeOutWithTheReplica) {
  const auto failure_of = [](Trainer& trainer) -> std::string {
    try {
      trainer.run();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  std::atomic<int> made = 0;
  const ModelFactory second_fails = [&] {
    auto module = std::make_shared<Fit>();
    const bool fails = made++ == 1;
    return TrainerModel{module, [plain = module.get(), fails, calls = 0](const torch::Tensor& rows) mutable {
                          if (fails && ++calls == 5) throw std::runtime_error("enough");
                          return plain->forward(rows);
                        }};
  };
  Trainer forward(second_fails, squared_error, small_run(3));
  EXPECT_EQ(failure_of(forward), "replica 1: enough");

  Trainer loss(
      factory_of<Fit>(), [](const auto& outputs, const auto&) { return outputs; }, small_run(1));
  EXPECT_THAT(failure_of(loss), HasSubstr("replica 0: the loss has 32 numbers"));

  Trainer callback(factory_of<Fit>(), squared_error, small_run(2));
  callback.on_step([](const StepReport&) { throw std::runtime_error("I do not like it"); });
  EXPECT_EQ(failure_of(callback), "replica 0: I do not like it");

  Trainer nothing([] { return TrainerModel{}; }, squared_error, small_run(2));
  EXPECT_THAT(failure_of(nothing), HasSubstr("without module"));
}

TEST(Trainer, StopsWhenItIsTold) {
  RunOptions options = small_run(2);
  options.steps = 1'000'000;
  Trainer trainer(factory_of<Fit>(), squared_error, options);
  trainer.on_step([&](const StepReport& report) {
    if (report.step == 3) trainer.stop();
  });
  const RunResult result = trainer.run();
  EXPECT_TRUE(result.stopped);
  EXPECT_LE(result.steps, 6U);
}

}  // namespace
}  // namespace sumpter
