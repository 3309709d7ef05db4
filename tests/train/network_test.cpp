#include "train/network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <thread>

#include "sumpter/error.h"
#include "train/models/model.h"

namespace sumpter {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

std::unique_ptr<Network> build(const char* model, const NetworkOptions& options = {}, std::int64_t classes = 10) {
  return make_network(parse_model(model, "model").with_classes(classes), options);
}

std::vector<NamedTensor> trained_of(const Network& network) {
  std::vector<NamedTensor> trained;
  for (const NamedTensor& entry : network.state())
    if (entry.trains) trained.push_back(entry);
  return trained;
}

// All gradients after a loss, one after another.
torch::Tensor gradients_of(Network& network, const torch::Tensor& values, const torch::Tensor& labels) {
  network.loss(values, labels).backward();
  std::vector<torch::Tensor> flat;
  for (const NamedTensor& entry : trained_of(network)) {
    EXPECT_EQ(entry.tensor.grad().scalar_type(), entry.tensor.scalar_type()) << entry.name;
    flat.push_back(entry.tensor.grad().flatten());
  }
  return torch::cat(flat);
}

double distance(const torch::Tensor& a, const torch::Tensor& b) {
  return (a.to(torch::kFloat64) - b.to(torch::kFloat64)).norm().item<double>() / b.norm().item<double>();
}

// Numbers between -1 and 1 that have a pattern but no symmetry.
torch::Tensor some_images(std::int64_t rows, std::int64_t channels, std::int64_t side) {
  return torch::arange(rows * channels * side * side, torch::kFloat32)
      .mul_(0.37)
      .sin_()
      .view({rows, channels, side, side});
}

torch::Tensor some_labels(std::int64_t rows) { return torch::arange(rows, torch::kInt64).remainder(7); }

TEST(Network, DescribesWhatTrainsByModule) {
  const auto parameters = describe(trained_of(*build("resnet18")));
  EXPECT_EQ(parameters[0].name, "conv1.weight");
  EXPECT_THAT(parameters[0].shape, ElementsAre(64, 3, 7, 7));
  EXPECT_EQ(parameters[0].count, 64U * 3 * 7 * 7);
  std::vector<int> modules;
  for (std::size_t i = 0; i < 6; ++i) modules.push_back(parameters[i].module);
  // conv1.weight, bn1.weight, bn1.bias, layer1.0.conv1.weight, layer1.0.bn1.weight and .bias.
  EXPECT_THAT(modules, ElementsAre(0, 1, 1, 2, 3, 3));
  EXPECT_EQ(parameters.back().name, "fc.bias");
  EXPECT_THAT(parameters.back().shape, ElementsAre(10));
  EXPECT_EQ(parameters.back().module, 40);  // 20 convolutions, 20 norms before it
}

TEST(Network, NumbersModulesByTheirNames) {
  const auto tensor = torch::zeros({2, 3});
  const auto parameters = describe({{"scale", tensor}, {"shift", tensor}, {"a.b.w", tensor}, {"a.c.w", tensor}});
  std::vector<int> modules;
  for (const ParameterInfo& parameter : parameters) modules.push_back(parameter.module);
  EXPECT_THAT(modules, ElementsAre(0, 0, 1, 2));
  EXPECT_TRUE(describe({}).empty());
}

TEST(Network, StartsFromItsSeed) {
  const auto first = [&](std::uint64_t seed) { return trained_of(*build("lenet", {.seed = seed})).front().tensor; };
  EXPECT_TRUE(torch::equal(first(7), first(7)));
  EXPECT_FALSE(torch::equal(first(7), first(8)));
  // torch's default for a convolution of 25 inputs: uniform within 1/sqrt(25).
  EXPECT_LE(first(7).abs().max().item<float>(), 0.2F);
  EXPECT_GE(first(7).abs().max().item<float>(), 0.19F);
}

TEST(Network, CrossEntropyIsTheMeanOverRows) {
  const auto scores = torch::tensor({0.0, 0.0, std::log(3.0), 0.0}, torch::kFloat64).view({2, 2});
  const auto labels = torch::tensor({1, 0}, torch::kInt64);
  // Probabilities 1/2 and 3/4.
  EXPECT_DOUBLE_EQ(cross_entropy(scores, labels, {}).item<double>(), (std::log(2.0) + std::log(4.0 / 3)) / 2);
  // With smoothing s, 1 - s of the label's and s of the mean over classes: -log 1/2 twice; -log 3/4 and -log 1/4.
  const double second = 0.8 * std::log(4.0 / 3) + 0.2 * (std::log(4.0 / 3) + std::log(4.0)) / 2;
  EXPECT_DOUBLE_EQ(cross_entropy(scores, labels, {.label_smoothing = 0.2}).item<double>(),
                   (std::log(2.0) + second) / 2);
  const auto positions = scores.view({1, 2, 2});
  EXPECT_TRUE(torch::equal(cross_entropy(positions, labels.view({1, 2}), {}), cross_entropy(scores, labels, {})));
}

TEST(Network, LossIsThatOfTheOptions) {
  const auto images = some_images(3, 1, 28);
  const auto labels = some_labels(3);
  const auto network = build("lenet", {.seed = 2, .loss = {.label_smoothing = 0.25}});
  const auto scores = network->scores(images);
  EXPECT_FALSE(scores.requires_grad());
  const auto loss = network->loss(images, labels);
  EXPECT_TRUE(torch::equal(loss.detach(), cross_entropy(scores, labels, {.label_smoothing = 0.25})));
  EXPECT_FALSE(torch::equal(loss.detach(), cross_entropy(scores, labels, {})));
}

TEST(Network, ScoresChangeNothing) {
  const auto network = build("resnet18");
  const auto images = some_images(2, 3, 33);
  network->loss(images, some_labels(2));
  std::vector<torch::Tensor> before;
  for (const NamedTensor& entry : network->state()) before.push_back(entry.tensor.clone());
  const auto scores = network->scores(images);
  const auto state = network->state();
  for (std::size_t i = 0; i < state.size(); ++i) EXPECT_TRUE(torch::equal(state[i].tensor, before[i])) << state[i].name;
  EXPECT_TRUE(torch::equal(network->scores(images), scores));
  // A loss moves the running statistics, and with them the scores.
  network->loss(images, some_labels(2));
  EXPECT_FALSE(torch::equal(network->scores(images), scores));
}

TEST(Network, Float64IsFloat64Throughout) {
  const auto images = some_images(2, 3, 33);
  const auto narrow = build("resnet18", {.seed = 4}),
             wide = build("resnet18", {.seed = 4, .precision = Precision::float64});
  const auto narrow_state = narrow->state(), wide_state = wide->state();
  for (std::size_t i = 0; i < wide_state.size(); ++i) {
    const bool counts = wide_state[i].name.ends_with("num_batches_tracked");
    EXPECT_EQ(wide_state[i].tensor.scalar_type(), counts ? torch::kInt64 : torch::kFloat64) << wide_state[i].name;
    EXPECT_TRUE(torch::equal(wide_state[i].tensor, narrow_state[i].tensor.to(wide_state[i].tensor.scalar_type())));
    EXPECT_EQ(wide_state[i].trains, narrow_state[i].trains);
  }
  EXPECT_EQ(wide->scores(images.to(torch::kFloat64)).scalar_type(), torch::kFloat64);
  const auto exact = gradients_of(*wide, images.to(torch::kFloat64), some_labels(2));
  EXPECT_EQ(exact.scalar_type(), torch::kFloat64);
  EXPECT_LT(distance(gradients_of(*narrow, images, some_labels(2)), exact), 1e-3);
}

TEST(Network, Bf16KeepsParametersAndGradientsInFloat32) {
  const auto images = some_images(8, 1, 28);
  const auto labels = some_labels(8);
  const auto exact = gradients_of(*build("lenet", {.seed = 4}), images, labels);
  const auto network = build("lenet", {.seed = 4, .precision = Precision::bf16});
  EXPECT_EQ(network->scores(images).scalar_type(), torch::kFloat32);
  EXPECT_EQ(network->loss(images, labels).scalar_type(), torch::kFloat32);
  const auto rounded = gradients_of(*network, images, labels);
  EXPECT_EQ(rounded.scalar_type(), torch::kFloat32);
  EXPECT_GT(distance(rounded, exact), 1e-5);
  EXPECT_LT(distance(rounded, exact), 0.1);
  // The thread computes as before.
  const auto product = torch::matmul(torch::ones({2, 2}), torch::ones({2, 2}));
  EXPECT_EQ(product.scalar_type(), torch::kFloat32);
}

TEST(Network, Bf16RunsEveryKindOfModel) {
  for (const char* name : {"resnet18", "googlenet"}) {
    const auto network = build(name, {.precision = Precision::bf16});
    EXPECT_TRUE(gradients_of(*network, some_images(2, 3, 64), some_labels(2)).isfinite().all().item<bool>()) << name;
  }
  const auto gpt = build("gpt:1-16-2-8", {.precision = Precision::bf16});
  const auto bytes = torch::arange(16, torch::kInt64).view({2, 8});
  EXPECT_TRUE(gradients_of(*gpt, bytes, bytes).isfinite().all().item<bool>());
}

TEST(Network, DropoutFollowsTheSeedInAnyThread) {
  const auto network = build("alexnet", {.seed = 6});
  const auto images = some_images(1, 3, 63);
  const auto labels = some_labels(1);
  const auto loss_of = [&](std::uint64_t seed) {
    network->seed(seed);
    return network->loss(images, labels).item<float>();
  };
  const float usual = loss_of(1);
  EXPECT_NE(network->loss(images, labels).item<float>(), usual);  // the next step's
  EXPECT_NE(loss_of(2), usual);
  float other_thread = 0;
  std::jthread([&] {
    torch::manual_seed(99);
    other_thread = loss_of(1);
  }).join();
  EXPECT_EQ(other_thread, usual);
  EXPECT_TRUE(torch::equal(network->scores(images), network->scores(images)));
}

TEST(Dropout, ZeroesOrScalesTheSameValuesInEveryPrecision) {
  const auto model = make_model(parse_model("mlp:2-2", "model"));
  const auto drop = [&](std::uint64_t seed, torch::ScalarType type) {
    model->seed(seed);
    return model->dropout(torch::full({100, 100}, 3, type), 0.25);
  };
  const auto usual = drop(5, torch::kFloat32);
  const auto dropped = usual.eq(0), scaled = usual.eq(4);
  EXPECT_TRUE(dropped.logical_or(scaled).all().item<bool>());
  const auto count = dropped.sum().item<std::int64_t>();
  EXPECT_GT(count, 2200);  // 2500 give or take 7 deviations of 43
  EXPECT_LT(count, 2800);
  EXPECT_TRUE(torch::equal(drop(5, torch::kFloat64), usual.to(torch::kFloat64)));
  EXPECT_TRUE(torch::equal(drop(5, torch::kBFloat16), usual.to(torch::kBFloat16)));
  EXPECT_FALSE(torch::equal(drop(6, torch::kFloat32), usual));
  model->use_dropout(false);
  EXPECT_TRUE(drop(5, torch::kFloat32).eq(3).all().item<bool>());
  model->use_dropout(true);
  model->eval();
  EXPECT_TRUE(drop(5, torch::kFloat32).eq(3).all().item<bool>());
}

TEST(Network, SaysThatASingleRowHasNoVariance) {
  const auto network = build("resnet18");
  EXPECT_TRUE(std::isfinite(network->loss(some_images(1, 3, 33), some_labels(1)).item<float>()));
  try {
    network->loss(some_images(1, 3, 32), some_labels(1));
    ADD_FAILURE();
  } catch (const RequestError& error) {
    EXPECT_THAT(error.what(), HasSubstr("give each replica 2 rows or more"));
  }
  EXPECT_TRUE(network->scores(some_images(1, 3, 32)).isfinite().all().item<bool>());
}

}  // namespace
}  // namespace sumpter
