#include "spec/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <string>

#include "sumpter/error.h"

namespace sumpter {
namespace {

using testing::StartsWith;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <typename Options>
void expect_refused(const Options& options, const std::string& key) {
  try {
    validate(options);
    ADD_FAILURE() << "accepted a wrong " << key;
  } catch (const RequestError& error) {
    EXPECT_THAT(error.what(), StartsWith(key + ":"));
  }
}

TEST(Optimizer, IsReadByItsName) {
  for (const OptimizerKind kind : {OptimizerKind::sgd, OptimizerKind::adam, OptimizerKind::adamw})
    EXPECT_EQ(parse_optimizer(name_of(kind), "--optimizer"), kind);
  EXPECT_EQ(name_of(OptimizerKind::adamw), "adamw");
  EXPECT_THROW(parse_optimizer("Adam", "--optimizer"), RequestError);
  for (const ScheduleKind kind : {ScheduleKind::constant, ScheduleKind::step, ScheduleKind::cosine})
    EXPECT_EQ(parse_schedule(name_of(kind), "--schedule"), kind);
  EXPECT_EQ(name_of(ScheduleKind::cosine), "cosine");
  EXPECT_THROW(parse_schedule("", "--schedule"), RequestError);
}

TEST(Optimizer, TakesWhatTorchTakes) {
  EXPECT_NO_THROW(validate(OptimizerOptions{}));
  EXPECT_NO_THROW(validate({.learning_rate = 0, .momentum = 0, .beta1 = 0, .beta2 = 0, .epsilon = 0}));
  EXPECT_NO_THROW(validate({.momentum = 1.5, .nesterov = true, .weight_decay = 2, .clip_norm = 1e30}));
  EXPECT_NO_THROW(validate({.kind = OptimizerKind::adamw, .momentum = 0, .clip_norm = 1}));
}

TEST(Optimizer, RefusesWhatIsWrongAndNamesTheKey) {
  for (const double wrong : {-1e-9, kNaN, kInfinity}) {
    expect_refused(OptimizerOptions{.learning_rate = wrong}, "learning_rate");
    expect_refused(OptimizerOptions{.momentum = wrong}, "momentum");
    expect_refused(OptimizerOptions{.weight_decay = wrong}, "weight_decay");
    expect_refused(OptimizerOptions{.beta1 = wrong}, "beta1");
    expect_refused(OptimizerOptions{.beta2 = wrong}, "beta2");
    expect_refused(OptimizerOptions{.epsilon = wrong}, "epsilon");
    expect_refused(OptimizerOptions{.clip_norm = wrong}, "clip_norm");
  }
  expect_refused(OptimizerOptions{.beta1 = 1}, "beta1");
  expect_refused(OptimizerOptions{.beta2 = 1}, "beta2");
  expect_refused(OptimizerOptions{.momentum = 0, .nesterov = true}, "nesterov");
  expect_refused(OptimizerOptions{.kind = OptimizerKind::adam, .nesterov = true}, "nesterov");
}

TEST(Schedule, RefusesWhatIsWrongAndNamesTheKey) {
  EXPECT_NO_THROW(validate(Schedule{}));
  EXPECT_NO_THROW(validate({.kind = ScheduleKind::step, .every = 1, .gamma = 2}));
  EXPECT_NO_THROW(validate({.kind = ScheduleKind::cosine, .steps = 1, .least = 1}));
  expect_refused(Schedule{.kind = ScheduleKind::step}, "every");
  expect_refused(Schedule{.kind = ScheduleKind::cosine}, "steps");
  for (const double wrong : {0.0, -0.5, kNaN, kInfinity})
    expect_refused(Schedule{.kind = ScheduleKind::step, .every = 1, .gamma = wrong}, "gamma");
  for (const double wrong : {-0.1, 1.1, kNaN})
    expect_refused(Schedule{.kind = ScheduleKind::cosine, .steps = 1, .least = wrong}, "least");
}

TEST(Schedule, ConstantIsOne) {
  for (const std::uint64_t step : {std::uint64_t{0}, std::uint64_t{1}, ~std::uint64_t{0}})
    EXPECT_EQ(Schedule{}.factor(step), 1);
}

TEST(Schedule, WarmUpRisesLinearly) {
  const Schedule schedule{.warmup = 3};
  EXPECT_EQ(schedule.factor(0), 0.25);
  EXPECT_EQ(schedule.factor(1), 0.5);
  EXPECT_EQ(schedule.factor(2), 0.75);
  EXPECT_EQ(schedule.factor(3), 1);
  EXPECT_EQ(schedule.factor(4), 1);
}

TEST(Schedule, StepFallsAfterEverySoManySteps) {
  const Schedule schedule{.kind = ScheduleKind::step, .every = 3, .gamma = 0.5};
  for (std::uint64_t step = 0; step < 30; ++step)
    EXPECT_EQ(schedule.factor(step), std::ldexp(1, -static_cast<int>(step / 3))) << step;
}

TEST(Schedule, CosineFallsToTheLeastAndStaysThere) {
  const Schedule schedule{.kind = ScheduleKind::cosine, .steps = 8, .least = 0.25};
  EXPECT_EQ(schedule.factor(0), 1);
  EXPECT_EQ(schedule.factor(4), 0.625);
  for (std::uint64_t step = 0; step < 8; ++step) {
    const double angle = std::numbers::pi * static_cast<double>(step) / 8;
    EXPECT_NEAR(schedule.factor(step), 0.25 + 0.75 * (1 + std::cos(angle)) / 2, 1e-15) << step;
  }
  for (const std::uint64_t step : {std::uint64_t{8}, std::uint64_t{9}, ~std::uint64_t{0}})
    EXPECT_EQ(schedule.factor(step), 0.25) << step;
}

TEST(Schedule, WarmUpMultipliesTheRest) {
  const Schedule step{.kind = ScheduleKind::step, .warmup = 3, .every = 2, .gamma = 0.5};
  EXPECT_EQ(step.factor(1), 0.5);
  EXPECT_EQ(step.factor(2), 0.75 * 0.5);
  EXPECT_EQ(step.factor(4), 0.25);
  const Schedule cosine{.kind = ScheduleKind::cosine, .warmup = 4, .steps = 4};
  EXPECT_EQ(cosine.factor(0), 0.2);
  EXPECT_EQ(cosine.factor(2), 0.6 * 0.5);
  EXPECT_EQ(cosine.factor(4), 0);
}

}  // namespace
}  // namespace sumpter
