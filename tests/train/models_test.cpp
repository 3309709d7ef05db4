#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string_view>

#include "train/models/model.h"
#include "train/network.h"

namespace sumpter {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;

constexpr std::int64_t kRows = 2;

// A model, and rows that are quick to compute.
struct Case {
  const char* name;
  std::int64_t side;  // of images; 0: bytes
  std::int64_t channels = 3;
};
void PrintTo(const Case& value, std::ostream* out) { *out << value.name; }

struct Batch {
  explicit Batch(const Case& of) {
    labels = torch::arange(kRows, torch::kInt64).remainder(2);
    if (of.side == 0) {
      values = torch::arange(kRows * 8, torch::kInt64).remainder(5).view({kRows, 8});
      labels = values.remainder(3);
    } else {
      const auto count = kRows * of.channels * of.side * of.side;
      values = torch::arange(count, torch::kFloat32).mul_(0.37).sin_().view({kRows, of.channels, of.side, of.side});
    }
  }
  torch::Tensor values, labels;
};

ModelSpec spec_of(const char* name, std::int64_t classes = 4) {
  return parse_model(name, "model").with_classes(classes);
}

std::string owner_of(const std::string& name) { return name.substr(0, name.rfind('.')); }

// Layers that have parameters, in the order of the state.
std::vector<std::string> layers_of(const Network& network) {
  std::vector<std::string> layers;
  for (const NamedTensor& entry : network.state())
    if (entry.trains && (layers.empty() || layers.back() != owner_of(entry.name)))
      layers.push_back(owner_of(entry.name));
  return layers;
}

// Moves the layers of that prefix behind the last one of the other prefix.
void move_behind(std::vector<std::string>& layers, const std::string& prefix, const std::string& target) {
  const auto has = [](const std::string& start) {
    return [&start](const std::string& layer) { return layer.starts_with(start); };
  };
  std::vector<std::string> moved;
  std::ranges::copy_if(layers, std::back_inserter(moved), has(prefix));
  std::erase_if(layers, has(prefix));
  const auto last = std::find_if(layers.rbegin(), layers.rend(), has(target));
  layers.insert(last.base(), moved.begin(), moved.end());
}

class Models : public testing::TestWithParam<Case> {};

TEST_P(Models, HaveTheParametersThatTheCatalogueTells) {
  for (const std::int64_t classes : {7, 1000}) {
    const ModelSpec spec = spec_of(GetParam().name, classes);
    std::uint64_t count = 0;
    for (const NamedTensor& entry : make_network(spec, {})->state())
      if (entry.trains) count += static_cast<std::uint64_t>(entry.tensor.numel());
    EXPECT_EQ(count, spec.parameters()) << classes;
  }
}

// Every parameter is not a number until the gate is asked for its layer, and is put right then: a model that reads one
// without asking has no loss.
TEST_P(Models, AskTheGateForEachLayerBeforeTheyReadIt) {
  const Batch batch(GetParam());
  const auto network = make_network(spec_of(GetParam().name), {.seed = 3});
  const auto state = network->state();
  const float expected = network->loss(batch.values, batch.labels).item<float>();
  const auto expected_scores = network->scores(batch.values);

  std::map<const void*, std::vector<std::pair<torch::Tensor, torch::Tensor>>> right;
  std::map<const void*, std::string> names;
  for (const NamedTensor& entry : state) {
    if (!entry.trains) continue;
    right[entry.layer].emplace_back(entry.tensor.detach(), entry.tensor.detach().clone());
    names[entry.layer] = owner_of(entry.name);
  }
  std::vector<std::string> asked;
  network->set_gate([&](const void* layer) {
    ASSERT_TRUE(right.contains(layer));
    asked.push_back(names[layer]);
    for (auto& [tensor, value] : right[layer]) tensor.copy_(value);
  });
  const auto spoil = [&] {
    for (auto& [layer, tensors] : right)
      for (auto& [tensor, value] : tensors) tensor.fill_(std::numeric_limits<float>::quiet_NaN());
    asked.clear();
  };

  spoil();
  network->seed(3);
  EXPECT_EQ(network->loss(batch.values, batch.labels).item<float>(), expected);
  std::vector<std::string> order = layers_of(*network);
  move_behind(order, "aux1.", "inception4a.");
  move_behind(order, "aux2.", "inception4d.");
  EXPECT_THAT(asked, ElementsAreArray(order));

  spoil();
  const auto scores = network->scores(batch.values);
  EXPECT_TRUE(scores.isfinite().all().item<bool>());
  std::erase_if(order, [](const std::string& layer) { return layer.starts_with("aux"); });
  EXPECT_THAT(asked, ElementsAreArray(order));
  EXPECT_EQ(scores.sizes(), expected_scores.sizes());

  network->set_gate({});
  asked.clear();
  network->scores(batch.values);
  EXPECT_TRUE(asked.empty());
}

INSTANTIATE_TEST_SUITE_P(All, Models,
                         testing::Values(Case{"lenet", 28, 1}, Case{"mlp:12-7-4", 2}, Case{"alexnet", 63},
                                         Case{"googlenet", 32}, Case{"vgg16", 32}, Case{"resnet18", 33},
                                         Case{"resnet50", 33}, Case{"resnet152", 33}, Case{"gpt:2-16-4-8", 0}),
                         [](const auto& test) {
                           std::string name = test.param.name;
                           std::ranges::replace_if(
                               name, [](char c) { return c == ':' || c == '-'; }, '_');
                           return name;
                         });

TEST(Vision, TakesTheSmallestImagesThatTheCatalogueTells) {
  for (const char* name : {"alexnet", "googlenet", "vgg16", "resnet18", "resnet50"}) {
    const auto side = static_cast<std::int64_t>(needs_of(spec_of(name)).smallest_side);
    const auto network = make_network(spec_of(name), {});
    const Batch batch(Case{name, side});
    EXPECT_TRUE(network->loss(batch.values, batch.labels).isfinite().item<bool>()) << name;
    EXPECT_EQ(network->scores(batch.values).sizes(), (std::vector<std::int64_t>{kRows, 4})) << name;
    if (side == 1) continue;
    const Batch smaller(Case{name, side - 1});
    EXPECT_ANY_THROW(network->scores(smaller.values)) << name;
  }
}

// Deviations and means of many draws, within 5 %; the formulas are torchvision's (fan out: outputs times kernel) and
// GPT-2's.
TEST(InitialNumbers, AreThoseOfTheOriginals) {
  struct Expected {
    const char *model, *parameter;
    double deviation;
  };
  for (const Expected& expected : {
           Expected{"resnet18", "conv1.weight", std::sqrt(2.0 / (64 * 49))},
           Expected{"resnet50", "layer4.0.downsample.0.weight", std::sqrt(2.0 / 2048)},
           Expected{"resnet18", "bn1.weight", 0},
           Expected{"vgg16", "features.28.weight", std::sqrt(2.0 / (512 * 9))},
           Expected{"vgg16", "classifier.3.weight", 0.01},
           Expected{"vgg16", "classifier.3.bias", 0},
           Expected{"googlenet", "inception4c.branch2.1.conv.weight", 0.01},
           Expected{"googlenet", "aux2.fc1.weight", 0.01},
           Expected{"alexnet", "features.3.weight", 1 / std::sqrt(3.0 * 64 * 25)},  // uniform
           Expected{"gpt:2-64-4-8", "wte.weight", 0.02},
           Expected{"gpt:2-64-4-8", "h.1.mlp.c_proj.weight", 0.02 / 2},
           Expected{"gpt:2-64-4-8", "h.1.mlp.c_fc.bias", 0},
       }) {
    const auto state = make_network(spec_of(expected.model), {.seed = 1})->state();
    const auto found = std::ranges::find(state, expected.parameter, &NamedTensor::name);
    ASSERT_NE(found, state.end()) << expected.parameter;
    const torch::Tensor numbers = found->tensor.detach();
    EXPECT_NEAR(numbers.std().item<double>(), expected.deviation, 0.05 * expected.deviation) << expected.parameter;
    const bool is_scale = std::string_view(expected.parameter) == "bn1.weight";
    EXPECT_NEAR(numbers.mean().item<double>(), is_scale ? 1 : 0, 0.05 * expected.deviation) << expected.parameter;
  }
}

TEST(Googlenet, AddsItsAuxiliaryHeadsInTrainingOnly) {
  const Batch batch(Case{"googlenet", 32});
  const auto network = make_network(spec_of("googlenet"), {.seed = 9, .use_dropout = false});
  torch::manual_seed(9);
  const auto model = make_model(spec_of("googlenet"));
  model->use_dropout(false);
  const auto heads = model->heads(batch.values);
  std::vector<double> weights;
  for (const Model::Head& head : heads) weights.push_back(head.weight);
  ASSERT_THAT(weights, ElementsAre(1, 0.3, 0.3));
  const auto loss = [&](int head) {
    return cross_entropy(heads[static_cast<std::size_t>(head)].scores, batch.labels, {});
  };
  EXPECT_TRUE(torch::equal(network->loss(batch.values, batch.labels), loss(0) + loss(1) * 0.3 + loss(2) * 0.3));
  EXPECT_FALSE(torch::equal(loss(1), loss(2)));
  model->eval();
  EXPECT_EQ(model->heads(batch.values).size(), 1U);
}

TEST(Gpt, HasTheNamesOfGpt2) {
  EXPECT_THAT(layers_of(*make_network(spec_of("gpt:1-8-2-4"), {})),
              ElementsAre("wte", "wpe", "h.0.ln_1", "h.0.attn.c_attn", "h.0.attn.c_proj", "h.0.ln_2", "h.0.mlp.c_fc",
                          "h.0.mlp.c_proj", "ln_f", "lm_head"));
}

TEST(Gpt, SeesNothingOfWhatFollows) {
  constexpr std::int64_t kPositions = 8, kChanged = 5;
  const auto network = make_network(spec_of("gpt:2-16-4-8"), {.seed = 1});
  const auto text = torch::arange(kPositions, torch::kInt64).view({1, kPositions});
  auto other = text.clone();
  other[0][kChanged] = 200;
  const auto difference = (network->scores(text) - network->scores(other)).abs().amax(2)[0];
  for (std::int64_t position = 0; position < kPositions; ++position)
    EXPECT_EQ(difference[position].item<float>() > 0, position >= kChanged) << position;
}

TEST(Gpt, LearnsAPeriodicText) {
  const auto network = make_network(spec_of("gpt:2-32-4-16"), {.seed = 1});
  // A period of 3, begun at different places.
  const auto text = torch::arange(3 * 17, torch::kInt64).remainder(3).add_(65).view({3, 17});
  const auto values = text.narrow(1, 0, 16), labels = text.narrow(1, 1, 16);
  const auto loss_of = [&] { return network->loss(values, labels); };
  EXPECT_NEAR(loss_of().item<float>(), std::log(256.0F), 0.2);
  for (int step = 0; step < 60; ++step) {
    loss_of().backward();
    const torch::NoGradGuard no_grad;
    for (const NamedTensor& entry : network->state()) {
      entry.tensor.sub_(entry.tensor.grad(), 0.2);
      entry.tensor.mutable_grad().reset();
    }
  }
  EXPECT_LT(loss_of().item<float>(), 0.1);
  EXPECT_TRUE(torch::equal(network->scores(values).argmax(2), labels));
}

}  // namespace
}  // namespace sumpter
