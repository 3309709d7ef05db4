// The optimizers' steps on every instruction set: against the reference, against steps worked out by hand, and against
// torch's rules written out in double.
#include <array>

#include "support.h"

namespace sumpter::kernels {
namespace {

class OptimizeOn : public EveryTarget {};
SUMPTER_ON_EVERY_TARGET(OptimizeOn);

constexpr OptimizerStep kSteps[] = {
    {.learning_rate = 0.1},
    {.learning_rate = 0.1, .momentum = 0.9},
    {.learning_rate = 0.01, .weight_decay = 1e-4},
    {.learning_rate = 0.3, .momentum = 0.7, .weight_decay = 0.05, .gradient_scale = 0.3},
    {.learning_rate = 0.3, .momentum = 0.7, .nesterov = true},
    {.learning_rate = 0.3, .momentum = 0.7, .weight_decay = 0.05, .nesterov = true, .gradient_scale = 0.3},
    {.kind = OptimizerKind::adam, .learning_rate = 1e-3},
    {.kind = OptimizerKind::adam, .learning_rate = 1e-2, .weight_decay = 0.1, .step = 7, .gradient_scale = 0.7},
    {.kind = OptimizerKind::adam, .learning_rate = 1e-2, .beta1 = 0.3, .beta2 = 0.5, .epsilon = 1e-3, .step = 2},
    {.kind = OptimizerKind::adam, .learning_rate = 1e-2, .weight_decay = 0.1, .beta1 = 0.3, .step = 3},
    {.kind = OptimizerKind::adamw, .learning_rate = 1e-3, .weight_decay = 1e-2, .step = 1000},
    {.kind = OptimizerKind::adamw, .learning_rate = 1e-1, .weight_decay = 0.5, .beta1 = 0, .gradient_scale = 0.7}};

TEST_P(OptimizeOn, EqualsTheReference) {
  for (std::size_t k = 0; k < std::size(kSteps); ++k) {
    for (const std::size_t count : {0, 1, 7, 16, 31, 64, 100, 1031}) {
      const std::size_t offset = count % 4;
      Array gradient(difficult_values(count, 1), offset);
      Array parameter(difficult_values(count, 2), offset + 1);
      Array first(difficult_values(count, 3), offset + 2);
      Array second(difficult_values(count, 4), offset + 3);
      std::array<Array, 3> expected = {parameter, first, second};
      reference::optimize(kSteps[k],
                          {gradient.floats(), expected[0].floats(), expected[1].floats(), expected[2].floats(), count});
      optimize(kSteps[k], {gradient.floats(), parameter.floats(), first.floats(), second.floats(), count});
      ASSERT_EQ(canonical(WireFormat::f32, parameter), canonical(WireFormat::f32, expected[0])) << k << ", " << count;
      ASSERT_EQ(canonical(WireFormat::f32, first), canonical(WireFormat::f32, expected[1])) << k << ", " << count;
      ASSERT_EQ(canonical(WireFormat::f32, second), canonical(WireFormat::f32, expected[2])) << k << ", " << count;
      ASSERT_TRUE(gradient.guards_hold() && parameter.guards_hold() && first.guards_hold() && second.guards_hold());
    }
  }
}

// The arrays of one optimizer and what is done with them.
template <typename T>
struct State {
  std::vector<T> gradient, parameter, first, second;
  explicit State(std::size_t count, T p = 0, T g = 0)
      : gradient(count, g), parameter(count, p), first(count), second(count) {}
  void take(const OptimizerStep& step) {
    optimize(step, {gradient.data(), parameter.data(), first.data(), second.data(), gradient.size()});
  }
};

// Powers of two, so that each step is exact.
template <typename T>
void expect_steps_of_sgd() {
  constexpr std::size_t kCount = 19;
  const auto all = [](double value) { return std::vector<T>(kCount, static_cast<T>(value)); };
  State<T> state(kCount, 4, 1);
  OptimizerStep step = {.learning_rate = 0.5, .momentum = 0.5, .weight_decay = 0.25};
  state.take(step);
  EXPECT_EQ(state.first, all(2));      // 1 + 0.25 * 4
  EXPECT_EQ(state.parameter, all(3));  // 4 - 0.5 * 2
  step.nesterov = true;
  state.take(step);
  EXPECT_EQ(state.first, all(2.75));        // 0.5 * 2 + (1 + 0.25 * 3)
  EXPECT_EQ(state.parameter, all(1.4375));  // 3 - 0.5 * (1.75 + 0.5 * 2.75)
  step = {.learning_rate = 0.5, .momentum = 0.5, .gradient_scale = 0.25};
  state.take(step);
  EXPECT_EQ(state.first, all(1.625));      // 0.5 * 2.75 + 0.25
  EXPECT_EQ(state.parameter, all(0.625));  // 1.4375 - 0.5 * 1.625
  EXPECT_EQ(state.gradient, all(1));
  EXPECT_EQ(state.second, all(0));
}

TEST_P(OptimizeOn, TakesStepsOfSgd) {
  expect_steps_of_sgd<float>();
  expect_steps_of_sgd<double>();
}

// With betas of 1/2 and 3/4 the first step divides by exactly 1/2 and sqrt(1/4).
template <typename T>
void expect_steps_of_adam() {
  constexpr std::size_t kCount = 21;
  const auto all = [](double value) { return std::vector<T>(kCount, static_cast<T>(value)); };
  OptimizerStep step = {.kind = OptimizerKind::adam, .learning_rate = 0.25, .beta1 = 0.5, .beta2 = 0.75, .epsilon = 1};
  State<T> plain(kCount, 8, 6);
  plain.take(step);
  EXPECT_EQ(plain.first, all(3));                                             // 6 / 2
  EXPECT_EQ(plain.second, all(9));                                            // 36 / 4
  EXPECT_EQ(plain.parameter, std::vector<T>(kCount, T(8) + T(-1.5) / T(7)));  // 8 - (0.25 / 0.5 * 3) / (3 / 0.5 + 1)
  step.weight_decay = 0.25;
  State<T> coupled(kCount, 8, 4);  // the gradient becomes 4 + 0.25 * 8 = 6
  coupled.take(step);
  EXPECT_EQ(coupled.first, plain.first);
  EXPECT_EQ(coupled.second, plain.second);
  EXPECT_EQ(coupled.parameter, plain.parameter);
  step.kind = OptimizerKind::adamw;
  step.weight_decay = 2;
  State<T> decoupled(kCount, 16, 12);  // the parameter becomes 16 * (1 - 0.25 * 2) = 8
  step.gradient_scale = 0.5;
  decoupled.take(step);
  EXPECT_EQ(decoupled.first, plain.first);
  EXPECT_EQ(decoupled.second, plain.second);
  EXPECT_EQ(decoupled.parameter, plain.parameter);
}

TEST_P(OptimizeOn, TakesTheFirstStepOfAdam) {
  expect_steps_of_adam<float>();
  expect_steps_of_adam<double>();
}

// torch's documentation, in double and in its own terms: bias-corrected means.
struct Plain {
  double parameter = 0, first = 0, second = 0;
  void take(const OptimizerStep& step, double gradient) {
    double g = gradient * step.gradient_scale;
    if (step.kind == OptimizerKind::adamw) {
      parameter -= step.learning_rate * step.weight_decay * parameter;
    } else {
      g += step.weight_decay * parameter;
    }
    if (step.kind == OptimizerKind::sgd) {
      first = step.momentum * first + g;
      parameter -= step.learning_rate * (step.nesterov ? g + step.momentum * first : first);
      return;
    }
    first = step.beta1 * first + (1 - step.beta1) * g;
    second = step.beta2 * second + (1 - step.beta2) * g * g;
    const auto number = static_cast<double>(step.step);
    const double mean = first / (1 - std::pow(step.beta1, number));
    const double variance = second / (1 - std::pow(step.beta2, number));
    parameter -= step.learning_rate * mean / (std::sqrt(variance) + step.epsilon);
  }
};

TEST_P(OptimizeOn, FollowsTorchsRulesForManySteps) {
  constexpr std::size_t kCount = 37;
  constexpr std::uint64_t kTaken = 40;
  for (std::size_t k = 0; k < std::size(kSteps); ++k) {
    State<float> floats(kCount);
    State<double> doubles(kCount);
    std::vector<Plain> plain(kCount);
    std::mt19937 random(static_cast<unsigned>(k));
    std::normal_distribution<float> normal;
    for (std::size_t i = 0; i < kCount; ++i) {
      plain[i].parameter = doubles.parameter[i] = floats.parameter[i] = normal(random);
    }
    for (std::uint64_t number = 1; number <= kTaken; ++number) {
      OptimizerStep step = kSteps[k];
      step.step = number;
      for (std::size_t i = 0; i < kCount; ++i) {
        doubles.gradient[i] = floats.gradient[i] = normal(random);
        plain[i].take(step, floats.gradient[i]);
      }
      floats.take(step);
      doubles.take(step);
    }
    for (std::size_t i = 0; i < kCount; ++i) {
      ASSERT_NEAR(doubles.parameter[i], plain[i].parameter, 1e-12) << k << ", " << i;
      ASSERT_NEAR(floats.parameter[i], plain[i].parameter, 1e-4) << k << ", " << i;
    }
  }
}

TEST_P(OptimizeOn, NeedsNoBufferWithoutMomentum) {
  constexpr std::size_t kCount = 35;
  const std::vector<float> gradient(kCount, 2.0F);
  std::vector<float> parameter(kCount, 1.0F);
  optimize({.learning_rate = 0.25}, {gradient.data(), parameter.data(), nullptr, nullptr, kCount});
  EXPECT_EQ(parameter, std::vector<float>(kCount, 0.5F));
  const std::vector<double> wide_gradient(kCount, 2.0);
  std::vector<double> wide(kCount, 1.0);
  optimize({.learning_rate = 0.25}, {wide_gradient.data(), wide.data(), nullptr, nullptr, kCount});
  EXPECT_EQ(wide, std::vector<double>(kCount, 0.5));
}

// Without decay the parameter does not touch the gradient: 0 * infinity would be NaN.
TEST_P(OptimizeOn, AddsNothingWithoutDecay) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const OptimizerStep& step : {OptimizerStep{.learning_rate = 0.1, .momentum = 0.9},
                                    OptimizerStep{.kind = OptimizerKind::adam, .beta1 = 0, .beta2 = 0}}) {
    State<float> state(20, kInfinity, 1);
    state.take(step);
    EXPECT_EQ(state.first, state.gradient);
    EXPECT_EQ(state.parameter, std::vector<float>(20, kInfinity));
  }
}

}  // namespace
}  // namespace sumpter::kernels
