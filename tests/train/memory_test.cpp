#include "train/memory.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <thread>

namespace sumpter {
namespace {

torch::Tensor floats(std::int64_t count) { return torch::empty({count}, torch::kFloat32); }

TEST(MemoryWatch, CountsWhatTensorsHold) {
  const MemoryWatch watch;
  EXPECT_EQ(watch.now(), 0U);
  EXPECT_EQ(watch.peak(), 0U);
  torch::Tensor first = floats(1000);
  EXPECT_EQ(watch.now(), 4000U);
  torch::Tensor second = torch::empty({10, 10}, torch::kFloat64);
  EXPECT_EQ(watch.now(), 4800U);
  const torch::Tensor view = first.view({10, 100});
  first.reset();
  EXPECT_EQ(watch.now(), 4800U) << "a view holds it";
  second.reset();
  EXPECT_EQ(watch.now(), 4000U);
  EXPECT_EQ(watch.peak(), 4800U);
  const torch::Tensor third = floats(1000);
  EXPECT_EQ(watch.now(), 8000U);
  EXPECT_EQ(watch.peak(), 8000U);
}

TEST(MemoryWatch, MemoryOfBeforeAndOfOthersDoesNotCount) {
  torch::Tensor before = floats(100'000);
  auto earlier = std::make_unique<MemoryWatch>();
  torch::Tensor of_earlier = floats(200'000);
  EXPECT_EQ(earlier->now(), 800'000U);
  earlier.reset();

  const MemoryWatch watch;
  const torch::Tensor kept = floats(10);
  torch::Tensor of_other, given_away = floats(50'000);
  std::thread([&] {
    of_other = floats(300'000);
    given_away.reset();
  }).join();
  EXPECT_EQ(watch.now(), 200'040U) << "what another thread frees is not seen";
  before.reset();
  of_earlier.reset();
  of_other.reset();
  EXPECT_EQ(watch.now(), 200'040U);
  EXPECT_EQ(watch.peak(), 200'040U);
}

TEST(MemoryWatch, LastOneMadeCounts) {
  const MemoryWatch outer;
  const torch::Tensor first = floats(10);
  {
    const MemoryWatch inner;
    const torch::Tensor second = floats(100);
    EXPECT_EQ(inner.now(), 400U);
    EXPECT_EQ(outer.now(), 40U);
  }
  const torch::Tensor third = floats(1000);
  EXPECT_EQ(outer.now(), 4040U);
}

// The gradients of 64x32 weights and 64 biases are left over, and all else has gone: activations, their gradients.
TEST(MemoryWatch, SeesTheBackwardPass) {
  torch::nn::Linear layer(32, 64);
  const torch::Tensor rows = torch::ones({16, 32});
  const MemoryWatch watch;
  layer->forward(rows).sum().backward();
  EXPECT_EQ(watch.now(), (64U * 32 + 64) * 4);
  EXPECT_GE(watch.peak(), (64U * 32 + 64 + 16 * 64) * 4);
  layer->zero_grad();
  EXPECT_EQ(watch.now(), 0U);
}

}  // namespace
}  // namespace sumpter
