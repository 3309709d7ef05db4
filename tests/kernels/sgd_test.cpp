// The optimizer's update on every instruction set, against the reference and against torch's rule worked out by hand.
#include "support.h"

namespace sumpter::kernels {
namespace {

class SgdOn : public EveryTarget {};
SUMPTER_ON_EVERY_TARGET(SgdOn);

constexpr Sgd kOptions[] = {{.learning_rate = 0.1F},
                            {.learning_rate = 0.1F, .momentum = 0.9F},
                            {.learning_rate = 0.01F, .weight_decay = 1e-4F},
                            {.learning_rate = 0.3F, .momentum = 0.7F, .weight_decay = 0.05F}};

TEST_P(SgdOn, EqualsTheReference) {
  for (const Sgd& options : kOptions) {
    for (const std::size_t count : {0, 1, 7, 16, 31, 64, 100, 1031}) {
      const std::size_t offset = count % 4;
      Array gradient(difficult_values(count, 1), offset);
      Array parameter(difficult_values(count, 2), offset + 1);
      Array momentum(difficult_values(count, 3), offset + 2);
      Array expected_parameter = parameter;
      Array expected_momentum = momentum;
      reference::sgd(options, gradient.floats(), expected_parameter.floats(), expected_momentum.floats(), count);
      sgd(options, gradient.floats(), parameter.floats(), momentum.floats(), count);
      ASSERT_EQ(canonical(WireFormat::f32, parameter), canonical(WireFormat::f32, expected_parameter)) << count;
      ASSERT_EQ(canonical(WireFormat::f32, momentum), canonical(WireFormat::f32, expected_momentum)) << count;
      ASSERT_TRUE(gradient.guards_hold() && parameter.guards_hold() && momentum.guards_hold());
    }
  }
}

// Powers of two, so that each step is exact.
TEST_P(SgdOn, TakesTwoStepsOfMomentumAndDecay) {
  constexpr std::size_t kCount = 19;
  const Sgd options = {.learning_rate = 0.5F, .momentum = 0.5F, .weight_decay = 0.25F};
  const std::vector<float> gradient(kCount, 1.0F);
  std::vector<float> parameter(kCount, 4.0F);
  std::vector<float> momentum(kCount, 0.0F);
  sgd(options, gradient.data(), parameter.data(), momentum.data(), kCount);
  EXPECT_EQ(momentum, std::vector<float>(kCount, 2.0F));   // 1 + 0.25 * 4
  EXPECT_EQ(parameter, std::vector<float>(kCount, 3.0F));  // 4 - 0.5 * 2
  sgd(options, gradient.data(), parameter.data(), momentum.data(), kCount);
  EXPECT_EQ(momentum, std::vector<float>(kCount, 2.75F));    // 0.5 * 2 + (1 + 0.25 * 3)
  EXPECT_EQ(parameter, std::vector<float>(kCount, 1.625F));  // 3 - 0.5 * 2.75
}

TEST_P(SgdOn, NeedsNoBufferWithoutMomentum) {
  constexpr std::size_t kCount = 35;
  const std::vector<float> gradient(kCount, 2.0F);
  std::vector<float> parameter(kCount, 1.0F);
  sgd({.learning_rate = 0.25F}, gradient.data(), parameter.data(), nullptr, kCount);
  EXPECT_EQ(parameter, std::vector<float>(kCount, 0.5F));
}

// Without decay the parameter does not touch the gradient: 0 * infinity would be NaN.
TEST_P(SgdOn, AddsNothingWithoutDecay) {
  const std::vector<float> gradient(20, 1.0F);
  std::vector<float> parameter(20, std::numeric_limits<float>::infinity());
  std::vector<float> momentum(20, 0.0F);
  sgd({.learning_rate = 0.1F, .momentum = 0.9F}, gradient.data(), parameter.data(), momentum.data(), 20);
  EXPECT_EQ(momentum, gradient);
}

}  // namespace
}  // namespace sumpter::kernels
