#include "train/replica.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <thread>

#include "input/split.h"
#include "input/synthetic.h"
#include "sumpter/error.h"

namespace sumpter {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// All rows of a small synthetic set that fits the model.
struct SomeRows {
  SomeRows(const ModelSpec& model, std::size_t count) : shape(usual_shape(model)), images(count * shape.bytes()) {
    const auto data = make_synthetic({.rows = count, .shape = shape, .classes = 2, .seed = 5});
    for (std::size_t i = 0; i < count; ++i)
      labels.push_back(data->get({.index = i}, std::span(images).subspan(i * shape.bytes(), shape.bytes())));
  }
  Rows part(int parts, int number) const {
    const RowRange range = split_rows(labels.size(), static_cast<std::size_t>(parts), static_cast<std::size_t>(number));
    return {std::span(images).subspan(range.begin * shape.bytes(), range.rows * shape.bytes()),
            std::span(labels).subspan(range.begin, range.rows), shape};
  }

  ImageShape shape;
  std::vector<std::uint8_t> images;
  std::vector<std::int64_t> labels;
};

// The parameters of every replica, each as one vector, after steps on the same rows.
std::vector<torch::Tensor> parameters_after(const ModelSpec& spec, const Plan& plan, std::size_t rows, int steps) {
  const auto models = make_models(spec, /*seed=*/3, plan);
  const auto context = make_context(*models.front(), plan, {.learning_rate = 0.5F, .momentum = 0.9F});
  Group group({.members = plan.replicas, .piece = plan.piece, .reducers = plan.reducers});
  const SomeRows data(spec, rows);
  const auto work = [&](int rank) {
    Exchange exchange = group.join(rank);
    Replica replica(models[static_cast<std::size_t>(rank)], *context, exchange);
    for (int step = 0; step < steps; ++step) {
      replica.forward(data.part(plan.replicas, rank));
      replica.finish();
      replica.backward();
    }
    replica.finish();
    exchange.barrier();
  };
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < plan.replicas; ++rank) threads.emplace_back(work, rank);
  }
  std::vector<torch::Tensor> result;
  for (const auto& model : models) {
    std::vector<torch::Tensor> flat;
    for (const Parameter& parameter : parameters_of(*model)) flat.push_back(parameter.tensor.detach().flatten());
    result.push_back(torch::cat(flat));
  }
  return result;
}

double distance(const torch::Tensor& a, const torch::Tensor& b) {
  return (a - b).norm().item<double>() / b.norm().item<double>();
}

TEST(Model, HasTheParametersThatTheCatalogueTells) {
  for (const char* name : {"lenet", "mlp", "mlp:12-7-3"}) {
    const ModelSpec spec = parse_model(name, "model");
    std::uint64_t count = 0;
    for (const ParameterInfo& parameter : describe(parameters_of(*make_model(spec, 0)))) count += parameter.count;
    EXPECT_EQ(count, spec.parameters()) << name;
  }
}

TEST(Model, NamesItsParametersAndNumbersItsLayers) {
  const auto parameters = describe(parameters_of(*make_model(parse_model("lenet", "model"), 0)));
  std::vector<std::string> names;
  std::vector<int> modules;
  for (const ParameterInfo& parameter : parameters) {
    names.push_back(parameter.name);
    modules.push_back(parameter.module);
  }
  EXPECT_THAT(names, ElementsAre("conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias", "fc1.weight", "fc1.bias",
                                 "fc2.weight", "fc2.bias"));
  EXPECT_THAT(modules, ElementsAre(0, 0, 1, 1, 2, 2, 3, 3));
}

TEST(Model, StartsFromItsSeed) {
  const ModelSpec spec = parse_model("lenet", "model");
  const auto first = [&](std::uint64_t seed) { return parameters_of(*make_model(spec, seed)).front().tensor; };
  EXPECT_TRUE(torch::equal(first(7), first(7)));
  EXPECT_FALSE(torch::equal(first(7), first(8)));
  // torch's default for a convolution of 25 inputs: uniform within 1/sqrt(25).
  EXPECT_LE(first(7).abs().max().item<float>(), 0.2F);
  EXPECT_GE(first(7).abs().max().item<float>(), 0.19F);
}

TEST(Model, AsksItsGateBeforeItReadsALayer) {
  const auto model = make_model(parse_model("lenet", "model"), 0);
  std::vector<std::string> asked;
  model->set_gate([&](const torch::nn::Module& layer) {
    for (const auto& child : model->named_children())
      if (child.value().get() == &layer) asked.push_back(child.key());
  });
  model->forward(torch::zeros({1, 1, 28, 28}));
  EXPECT_THAT(asked, ElementsAre("conv1", "conv2", "fc1", "fc2"));
}

TEST(Model, RefusesDataThatDoesNotFit) {
  const auto refusal_of = [](const char* model, const ImageShape& shape, int classes) -> std::string {
    try {
      check_input(parse_model(model, "model"), shape, classes);
    } catch (const RequestError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal_of("lenet", {1, 28, 28}, 10), "");
  EXPECT_EQ(refusal_of("mlp", {1, 14, 56}, 2), "");
  EXPECT_THAT(refusal_of("lenet", {3, 32, 32}, 10), HasSubstr("takes images of 1x28x28 and the data has 3x32x32"));
  EXPECT_THAT(refusal_of("mlp60m", {1, 28, 28}, 10), HasSubstr("takes 3072 values per image and the data has 1x28x28"));
  EXPECT_THAT(refusal_of("lenet", {1, 28, 28}, 11), HasSubstr("tells 10 classes apart and the data has 11"));
}

TEST(Replica, FindsThatBackwardFinishesLayersInReverse) {
  for (const char* name : {"lenet", "mlp"}) {
    const ModelSpec spec = parse_model(name, "model");
    const Plan plan{.chunk = {ChunkRule::Kind::layers, 1}};
    const auto models = make_models(spec, 0, plan);
    const auto context = make_context(*models.front(), plan, {});
    Group group({.members = 1});
    Exchange exchange = group.join(0);
    Replica replica(models.front(), *context, exchange);
    replica.forward(SomeRows(spec, 4).part(1, 0));
    replica.backward();
    replica.finish();
    std::vector<int> modules;
    for (const Chunk& chunk : context->chunks()) modules.push_back(context->parameters()[chunk.parameters[0]].module);
    EXPECT_TRUE(std::is_sorted(modules.rbegin(), modules.rend())) << name;
    EXPECT_EQ(modules.size(), replica.parameters().size() / 2) << name;
  }
}

TEST(Replica, DropsGradientsAfterTheStep) {
  const ModelSpec spec = parse_model("mlp:9-5-2", "model");
  const auto models = make_models(spec, 0, {});
  const auto context = make_context(*models.front(), {}, {});
  Group group({.members = 1});
  Exchange exchange = group.join(0);
  Replica replica(models.front(), *context, exchange);
  replica.forward(SomeRows(spec, 4).part(1, 0));
  replica.backward();
  for (const Parameter& parameter : replica.parameters()) EXPECT_TRUE(parameter.tensor.grad().defined());
  replica.finish();
  for (const Parameter& parameter : replica.parameters()) EXPECT_FALSE(parameter.tensor.grad().defined());
}

// 22 rows: 6, 6, 5 and 5 for four replicas, so that a mean over replicas would be another number.
TEST(Replica, FourTrainLikeOneOnTheSameBatch) {
  for (const char* name : {"lenet", "mlp:784-40-10"}) {
    const ModelSpec spec = parse_model(name, "model");
    const torch::Tensor one = parameters_after(spec, {.replicas = 1}, 22, 5).front();
    for (const Update update : {Update::device, Update::host}) {
      const Plan plan{.replicas = 4, .chunk = {ChunkRule::Kind::bytes, 4096}, .piece = 4096, .update = update};
      EXPECT_LE(distance(parameters_after(spec, plan, 22, 5).front(), one), 1e-5) << name << " " << name_of(update);
    }
  }
}

TEST(Replica, AllEndWithTheSameBits) {
  const ModelSpec spec = parse_model("mlp:784-40-10", "model");
  for (const std::size_t rows : {std::size_t{22}, std::size_t{3}}) {
    const auto device = parameters_after(spec, {.replicas = 4, .piece = 64, .reducers = 1}, rows, 4);
    const auto host = parameters_after(spec, {.replicas = 4, .update = Update::host}, rows, 4);
    for (const torch::Tensor& replica : device) EXPECT_TRUE(torch::equal(replica, device.front())) << rows;
    EXPECT_TRUE(torch::equal(host.front(), device.front())) << rows;
    EXPECT_EQ(host.back().equal(host.front()), true);
  }
}

TEST(Replica, HostUpdateKeepsOneSetOfParameters) {
  const auto models = make_models(parse_model("mlp", "model"), 0, {.replicas = 3, .update = Update::host});
  EXPECT_EQ(addresses_of(parameters_of(*models[0])), addresses_of(parameters_of(*models[2])));
  const auto own = make_models(parse_model("mlp", "model"), 0, {.replicas = 2});
  EXPECT_NE(addresses_of(parameters_of(*own[0])), addresses_of(parameters_of(*own[1])));
}

}  // namespace
}  // namespace sumpter
