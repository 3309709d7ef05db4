#include "train/user_network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <memory>
#include <string>
#include <vector>

#include "sumpter/error.h"

namespace sumpter {
namespace {

using testing::ElementsAre;

// Two weights and two buffers of 2 x 2, x @ (a + b) + c + d; `none` is a buffer that is not defined.
struct Pair : torch::nn::Module {
  Pair(const torch::Tensor& first, const torch::Tensor& second, const torch::Tensor& third, const torch::Tensor& fourth)
      : a(register_parameter("a", first, first.requires_grad())),
        b(register_parameter("b", second, second.requires_grad())),
        c(register_buffer("c", third)),
        d(register_buffer("d", fourth)) {
    register_buffer("none", torch::Tensor());
  }
  torch::Tensor forward(const torch::Tensor& x) { return torch::matmul(x, a + b) + c + d; }
  torch::Tensor a, b, c, d;
};

std::unique_ptr<Network> network_of(const std::vector<torch::Tensor>& tensors,
                                    Precision precision = Precision::float32) {
  const ModelFactory factory = factory_of<Pair>(tensors[0], tensors[1], tensors[2], tensors[3]);
  return make_user_network(factory(), {.loss = {}, .precision = precision});
}

std::vector<std::string> marks_of(const Network& network) {
  std::vector<std::string> marks;
  for (const NamedTensor& entry : network.state())
    marks.push_back(entry.name + (entry.trains ? " trains" : "") + (entry.buffer ? " buffer" : ""));
  return marks;
}

torch::Tensor square() { return torch::arange(4, torch::kFloat32).view({2, 2}); }
torch::Tensor rows() { return torch::tensor({1.0F, 0.0F, -1.0F, 0.5F}).view({2, 2}); }

TEST(UserNetwork, LaysParametersAndBuffersOutInRows) {
  const auto labels = torch::tensor({0, 1}, torch::kInt64);
  const auto transposed = square().t().contiguous();
  const auto plain = network_of({transposed.clone().requires_grad_(), torch::ones({2, 2}).requires_grad_(),
                                 transposed.clone(), torch::full({2, 2}, 3)});
  const auto network = network_of({square().t().requires_grad_(), torch::ones({}).expand({2, 2}).requires_grad_(),
                                   square().t(), torch::full({}, 3).expand({2, 2})});
  EXPECT_THAT(marks_of(*network), ElementsAre("a trains", "b trains", "c buffer", "d buffer"));
  const auto state = network->state(), expected = plain->state();
  ASSERT_EQ(state.size(), expected.size());
  for (const bool written : {false, true}) {
    const auto loss = network->loss(rows(), labels), expected_loss = plain->loss(rows(), labels);
    EXPECT_TRUE(torch::equal(loss, expected_loss));
    loss.backward();
    expected_loss.backward();
    EXPECT_TRUE(torch::equal(network->scores(rows()), plain->scores(rows())));
    for (std::size_t i = 0; i < state.size(); ++i) {
      EXPECT_TRUE(state[i].tensor.is_contiguous()) << state[i].name;
      EXPECT_GE(state[i].tensor.storage().nbytes(), state[i].tensor.nbytes()) << state[i].name;
      EXPECT_TRUE(torch::equal(state[i].tensor, expected[i].tensor)) << state[i].name;
      if (!state[i].trains) continue;
      EXPECT_TRUE(state[i].tensor.grad().is_contiguous()) << state[i].name;
      EXPECT_TRUE(torch::equal(state[i].tensor.grad(), expected[i].tensor.grad())) << state[i].name;
      for (const auto& tensor : {state[i].tensor, expected[i].tensor}) {
        tensor.mutable_grad().reset();
        // As the step does, which knows a place and a number of elements.
        for (int j = 0; !written && j < 4; ++j)
          static_cast<float*>(tensor.mutable_data_ptr())[j] = static_cast<float>(j * j);
      }
    }
  }
}

TEST(UserNetwork, TiesWhatIsOneInMemory) {
  const auto weight = square().t();
  const auto buffer = torch::ones({}).expand({2, 2});
  for (const Precision precision : {Precision::float32, Precision::float64}) {
    const auto tied = weight.detach().requires_grad_();
    const auto network = network_of({tied, tied, buffer.detach(), buffer.detach()}, precision);
    EXPECT_THAT(marks_of(*network), ElementsAre("a trains", "b", "c buffer", "d"));
    const auto state = network->state();
    EXPECT_TRUE(state[1].tensor.is_same(state[0].tensor));
    EXPECT_EQ(state[3].tensor.const_data_ptr(), state[2].tensor.const_data_ptr());
    EXPECT_TRUE(state[0].tensor.is_contiguous());
    const auto values = rows().to(state[0].tensor.scalar_type());
    const auto matrix = square().t().to(values.scalar_type());
    EXPECT_TRUE(torch::equal(network->scores(values), torch::matmul(values, matrix * 2) + 2));
  }
}

TEST(UserNetwork, WidensFloatingPointAlone) {
  const auto counts = torch::arange(4, torch::kInt64).view({2, 2}).t();
  const auto network =
      network_of({torch::ones({2, 2}).requires_grad_(), square().t(), square().t(), counts}, Precision::float64);
  EXPECT_THAT(marks_of(*network), ElementsAre("a trains", "b", "c buffer", "d buffer"));
  const auto state = network->state();
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(state[i].tensor.scalar_type(), torch::kFloat64) << state[i].name;
  for (std::size_t i = 1; i < 3; ++i)
    EXPECT_TRUE(torch::equal(state[i].tensor, square().t().to(torch::kFloat64))) << state[i].name;
  EXPECT_EQ(state[3].tensor.scalar_type(), torch::kInt64);
  EXPECT_TRUE(torch::equal(state[3].tensor, counts));
  for (const NamedTensor& entry : state) EXPECT_TRUE(entry.tensor.is_contiguous()) << entry.name;
}

TEST(UserNetwork, RefusesTensorsThatOverlap) {
  const auto fault = [](const std::vector<torch::Tensor>& tensors) -> std::string {
    try {
      network_of(tensors);
    } catch (const RequestError& error) {
      return error.what();
    }
    return "";
  };
  const auto overlap = [](const char* a, const char* b, const char* why) {
    return std::string("the trainer's factory: '") + a + "' and '" + b + "' share memory, but " + why +
           "; give each a storage of its own, by clone()";
  };
  const auto weight = square().requires_grad_(), own = torch::ones({2, 2}).requires_grad_();
  const auto transpose = weight.detach().t().requires_grad_();
  const auto buffer = torch::zeros({2, 2});
  EXPECT_EQ(fault({weight, transpose, buffer, buffer}), overlap("a", "b", "are not the same there"));
  EXPECT_EQ(fault({weight, own, transpose.detach(), buffer}), overlap("a", "c", "are not the same there"));
  // Two tensors of one memory would have a gradient each.
  EXPECT_EQ(fault({weight, weight.detach().requires_grad_(), buffer, buffer}),
            overlap("a", "b", "not a gradient, being two tensors"));
  EXPECT_EQ(fault({weight, own, buffer, buffer.to_sparse()}),
            "the trainer's factory: 'd' is sparse: make it dense, by to_dense()");
  const auto columns = torch::arange(8, torch::kFloat32).view({2, 4});
  EXPECT_EQ(fault({weight, own, columns.narrow(1, 0, 2), columns.narrow(1, 2, 2)}), "");
}

}  // namespace
}  // namespace sumpter
