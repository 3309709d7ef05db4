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
    return {.images = std::span(images).subspan(range.begin * shape.bytes(), range.rows * shape.bytes()),
            .labels = std::span(labels).subspan(range.begin, range.rows),
            .shape = shape};
  }

  ImageShape shape;
  std::vector<std::uint8_t> images;
  std::vector<std::int64_t> labels;
};

struct Replicas {
  Replicas(const ModelSpec& spec, const Plan& plan, const OptimizerOptions& optimizer = {}) {
    for (int rank = 0; rank < plan.replicas; ++rank) networks.push_back(make_network(spec, {.seed = 3}));
    unify(networks, plan.update);
    context = make_context(*networks.front(), {.plan = plan, .optimizer = optimizer, .schedule = kSchedule});
    input = input_options(spec, ElementType::u8, 0, Precision::float32);
  }

  static constexpr Schedule kSchedule{};
  std::vector<std::unique_ptr<Network>> networks;
  std::unique_ptr<StepContext> context;
  InputOptions input;
};

// The parameters of every replica, each as one vector, after steps on the same rows.
std::vector<torch::Tensor> parameters_after(const ModelSpec& spec, const Plan& plan, std::size_t rows, int steps) {
  const Replicas replicas(spec, plan, {.learning_rate = 0.5, .momentum = 0.9});
  Group group({.members = plan.replicas, .piece = plan.piece, .reducers = plan.reducers});
  const SomeRows data(spec, rows);
  const auto work = [&](int rank) {
    Exchange exchange = group.join(rank);
    Replica replica(*replicas.networks[static_cast<std::size_t>(rank)], *replicas.context, exchange,
                    {.input = replicas.input, .accumulate = plan.accumulate});
    for (int step = 0; step < steps; ++step) {
      replica.forward(data.part(plan.replicas, rank), static_cast<std::uint64_t>(step));
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
  for (const auto& network : replicas.networks) {
    std::vector<torch::Tensor> flat;
    for (const NamedTensor& parameter : trained(*network)) flat.push_back(parameter.tensor.detach().flatten());
    result.push_back(torch::cat(flat));
  }
  return result;
}

double distance(const torch::Tensor& a, const torch::Tensor& b) {
  return (a - b).norm().item<double>() / b.norm().item<double>();
}

TEST(Replica, FindsThatBackwardFinishesLayersInReverse) {
  for (const char* name : {"lenet", "mlp"}) {
    const ModelSpec spec = parse_model(name, "model");
    const Replicas replicas(spec, {.chunk = {ChunkRule::Kind::layers, 1}});
    Group group({.members = 1});
    Exchange exchange = group.join(0);
    Replica replica(*replicas.networks.front(), *replicas.context, exchange, {.input = replicas.input});
    replica.forward(SomeRows(spec, 4).part(1, 0), 0);
    replica.backward();
    replica.finish();
    std::vector<int> modules;
    for (const Chunk& chunk : replicas.context->chunks())
      modules.push_back(replicas.context->parameters()[static_cast<std::size_t>(chunk.parameters[0])].module);
    EXPECT_TRUE(std::is_sorted(modules.rbegin(), modules.rend())) << name;
    EXPECT_EQ(modules.size(), replica.parameters().size() / 2) << name;
  }
}

TEST(Replica, DropsGradientsAfterTheStep) {
  const ModelSpec spec = parse_model("mlp:9-5-2", "model");
  const Replicas replicas(spec, {});
  Group group({.members = 1});
  Exchange exchange = group.join(0);
  Replica replica(*replicas.networks.front(), *replicas.context, exchange, {.input = replicas.input});
  replica.forward(SomeRows(spec, 4).part(1, 0), 0);
  replica.backward();
  for (const NamedTensor& parameter : replica.parameters()) EXPECT_TRUE(parameter.tensor.grad().defined());
  replica.finish();
  for (const NamedTensor& parameter : replica.parameters()) EXPECT_FALSE(parameter.tensor.grad().defined());
}

// What a forward does to running statistics belongs to its step: a checkpoint before that step has none of it.
TEST(Replica, ForwardCanBeTakenBack) {
  const ModelSpec spec = parse_model("resnet18", "model").with_classes(10);
  const Replicas replicas(spec, {});
  Group group({.members = 1});
  Exchange exchange = group.join(0);
  Replica replica(*replicas.networks.front(), *replicas.context, exchange, {.input = replicas.input});
  const auto running_mean = [&] {
    for (const NamedTensor& entry : replicas.networks.front()->state())
      if (entry.name == "bn1.running_mean") return entry.tensor.clone();
    return torch::Tensor();
  };
  const torch::Tensor before = running_mean();
  std::vector<std::uint8_t> images(2 * 3 * 32 * 32, 200);
  const std::vector<std::int64_t> labels = {1, 2};
  replica.forward({.images = images, .labels = labels, .shape = {3, 32, 32}}, 0);
  EXPECT_FALSE(torch::equal(running_mean(), before));
  EXPECT_TRUE(torch::equal(replica.extras().buffers.front().tensor, before));
  replica.withdraw();
  EXPECT_TRUE(torch::equal(running_mean(), before));
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
  const Replicas shared(parse_model("mlp", "model"), {.replicas = 3, .update = Update::host});
  EXPECT_EQ(addresses_of(trained(*shared.networks[0])), addresses_of(trained(*shared.networks[2])));
  const Replicas own(parse_model("mlp", "model"), {.replicas = 2});
  EXPECT_NE(addresses_of(trained(*own.networks[0])), addresses_of(trained(*own.networks[1])));
}

}  // namespace
}  // namespace sumpter
