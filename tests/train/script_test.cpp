#include "train/script.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <functional>

#include "sumpter/error.h"

namespace sumpter {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// What is written to a file of its own, which is gone after the test.
class Script : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }

  // One linear layer, [rows, 3] to [rows, 2], whose weight counts from 0, and a forward of that body.
  torch::jit::Module linear(const std::string& body, torch::ScalarType type = torch::kFloat32) {
    torch::jit::Module module("Linear");
    module.register_attribute("training", c10::BoolType::get(), true);
    module.register_parameter("weight", torch::arange(6, type).view({2, 3}).requires_grad_(), false);
    module.register_parameter("bias", torch::zeros({2}, type).requires_grad_(), false);
    module.define("def forward(self, x):\n" + body);
    return module;
  }
  torch::jit::Module linear() { return linear("    return torch.linear(x.flatten(1), self.weight, self.bias)\n"); }

  std::unique_ptr<Network> load(const torch::jit::Module& module, const NetworkOptions& options = {}) {
    module.save(path_.string());
    return load_script(path_, options);
  }
  bool draws(const std::string& body) {
    linear(body).save(path_.string());
    return draws_random_numbers(path_);
  }
  template <typename E>
  std::string fault_of(const std::function<void()>& act) {
    try {
      act();
    } catch (const E& error) {
      return error.what();
    }
    return "";
  }

  std::filesystem::path path_ =
      std::filesystem::temp_directory_path() / ("sumpter_script_test_" + std::to_string(getpid()) + ".pt");
};

torch::Tensor some_rows() { return torch::tensor({1.0F, 0.0F, -1.0F, 0.5F, 2.0F, 0.0F}).view({2, 3}); }

TEST_F(Script, ComputesAndLearnsWhatItsFileSays) {
  const auto network = load(linear());
  const auto state = network->state();
  ASSERT_EQ(state.size(), 2U);
  EXPECT_EQ(state[0].name, "weight");
  EXPECT_EQ(state[1].name, "bias");
  EXPECT_TRUE(state[0].trains && state[1].trains);
  EXPECT_TRUE(torch::equal(state[0].tensor.detach(), torch::arange(6, torch::kFloat32).view({2, 3})));

  const auto scores = network->scores(some_rows());
  EXPECT_FALSE(scores.requires_grad());
  EXPECT_TRUE(torch::equal(scores, torch::tensor({-2.0F, -2.0F, 2.0F, 9.5F}).view({2, 2})));
  const auto labels = torch::tensor({0, 1}, torch::kInt64);
  const auto loss = network->loss(some_rows(), labels);
  EXPECT_TRUE(torch::equal(loss.detach(), cross_entropy(scores, labels, {})));
  loss.backward();
  // By hand: probabilities less the label's one, over the number of rows.
  const float p = 1 / (1 + std::exp(7.5F));
  EXPECT_NEAR(state[1].tensor.grad()[0].item<float>(), (0.5F - 1 + p) / 2, 1e-6);
  EXPECT_NEAR(state[1].tensor.grad()[1].item<float>(), (0.5F - p) / 2, 1e-6);
}

TEST_F(Script, AsksTheGateOnceForAll) {
  const auto network = load(linear());
  int asked = 0;
  network->set_gate([&](const void* layer) {
    EXPECT_EQ(layer, nullptr);
    ++asked;
  });
  network->loss(some_rows(), torch::tensor({0, 1}, torch::kInt64));
  EXPECT_EQ(asked, 1);
  network->scores(some_rows());
  EXPECT_EQ(asked, 2);
}

TEST_F(Script, NamesWhatIsInModulesAndTheirBuffers) {
  torch::jit::Module root("Root");
  torch::jit::Module inner = linear();
  inner.register_buffer("calls", torch::zeros({1}, torch::kInt64));
  root.register_module("inner", inner);
  root.register_parameter("scale", torch::ones({1}).requires_grad_(), false);
  root.register_parameter("frozen", torch::ones({1}).requires_grad_(false), false);
  root.define("def forward(self, x):\n    return self.inner.forward(x) * self.scale * self.frozen\n");
  std::vector<std::string> names, trained;
  for (const NamedTensor& entry : load(root)->state()) {
    names.push_back(entry.name);
    if (entry.trains) trained.push_back(entry.name);
    EXPECT_EQ(entry.layer, nullptr);
  }
  EXPECT_THAT(names, ElementsAre("scale", "frozen", "inner.weight", "inner.bias", "inner.calls"));
  EXPECT_THAT(trained, ElementsAre("scale", "inner.weight", "inner.bias"));
}

TEST_F(Script, TrainsATensorWithTwoNamesOnce) {
  torch::jit::Module root("Root");
  torch::jit::Module first = linear(), second = linear();
  second.setattr("weight", first.attr("weight"));
  root.register_module("first", first);
  root.register_module("second", second);
  root.define("def forward(self, x):\n    return self.first.forward(x) + self.second.forward(x)\n");
  const auto network = load(root);
  const auto state = network->state();
  std::vector<std::string> trained;
  for (const NamedTensor& entry : state)
    if (entry.trains) trained.push_back(entry.name);
  EXPECT_THAT(trained, ElementsAre("first.weight", "first.bias", "second.bias"));
  ASSERT_EQ(state[2].name, "second.weight");
  EXPECT_EQ(state[0].tensor.unsafeGetTensorImpl(), state[2].tensor.unsafeGetTensorImpl());

  // Its gradient is that of a single layer of twice the scores, twice.
  const auto labels = torch::tensor({0, 1}, torch::kInt64);
  network->loss(some_rows(), labels).backward();
  const auto weight = torch::arange(6, torch::kFloat32).view({2, 3}).requires_grad_();
  cross_entropy(torch::linear(some_rows(), weight) * 2, labels, {}).backward();
  EXPECT_TRUE(torch::allclose(state[0].tensor.grad(), weight.grad()));
}

// A convolution, [rows, 3, 4, 4] to [rows, 2]. `frozen`, a buffer, is added to the scores.
torch::jit::Module convolution(const torch::Tensor& weight, const torch::Tensor& bias, const torch::Tensor& frozen) {
  torch::jit::Module module("Convolution");
  module.register_attribute("training", c10::BoolType::get(), true);
  module.register_parameter("weight", weight.detach().requires_grad_(), false);
  module.register_parameter("bias", bias.detach().requires_grad_(), false);
  module.register_buffer("frozen", frozen);
  module.define(
      "def forward(self, x):\n    return torch.conv2d(x, self.weight, self.bias).flatten(2).sum(2) + self.frozen\n");
  return module;
}

// As the step does, which knows a place and a number of elements.
void write_raw(const torch::Tensor& tensor) {
  auto* const numbers = static_cast<float*>(tensor.mutable_data_ptr());
  for (std::int64_t i = 0; i < tensor.numel(); ++i) numbers[i] = static_cast<float>((i * 7) % 5) - 2;
}

// Both give the same numbers, before and after their parameters were written, in gradients and scores.
void expect_same(Network& network, Network& plain, const torch::Tensor& values) {
  const auto labels = torch::tensor({0, 1}, torch::kInt64);
  const auto state = network.state(), expected = plain.state();
  ASSERT_EQ(state.size(), expected.size());
  for (const bool written : {false, true}) {
    const auto loss = network.loss(values, labels), expected_loss = plain.loss(values, labels);
    EXPECT_TRUE(torch::equal(loss, expected_loss));
    loss.backward();
    expected_loss.backward();
    for (std::size_t i = 0; i < state.size(); ++i) {
      EXPECT_EQ(state[i].name, expected[i].name);
      EXPECT_EQ(state[i].trains, expected[i].trains) << state[i].name;
      EXPECT_EQ(state[i].buffer, expected[i].buffer) << state[i].name;
      EXPECT_TRUE(state[i].tensor.is_contiguous()) << state[i].name;
      EXPECT_GE(state[i].tensor.storage().nbytes(), state[i].tensor.nbytes()) << state[i].name;
      EXPECT_TRUE(torch::equal(state[i].tensor, expected[i].tensor)) << state[i].name;
      if (!state[i].trains) continue;
      EXPECT_TRUE(state[i].tensor.grad().is_contiguous()) << state[i].name;
      EXPECT_TRUE(torch::equal(state[i].tensor.grad(), expected[i].tensor.grad())) << state[i].name;
      state[i].tensor.mutable_grad().reset();
      expected[i].tensor.mutable_grad().reset();
    }
    EXPECT_TRUE(torch::equal(network.scores(values), plain.scores(values)));
    for (std::size_t i = 0; !written && i < state.size(); ++i) {
      write_raw(state[i].tensor);
      write_raw(expected[i].tensor);
    }
  }
}

TEST_F(Script, LaysParametersAndBuffersOutInRows) {
  const auto weight = torch::arange(24, torch::kFloat32).sin().view({2, 3, 2, 2});
  const auto values = torch::arange(96, torch::kFloat32).cos().view({2, 3, 4, 4});
  const auto strided = torch::zeros({2, 3, 2, 4}).slice(3, 0, 4, 2).copy_(weight);
  for (const auto& other : {weight.contiguous(torch::MemoryFormat::ChannelsLast),
                            weight.transpose(0, 3).contiguous().transpose(0, 3), strided}) {
    ASSERT_FALSE(other.is_contiguous());
    const auto plain = load(convolution(weight, torch::full({2}, 0.5F), torch::full({2}, 0.25F)));
    const auto bias = torch::full({}, 0.5F).expand(2), frozen = torch::full({}, 0.25F).expand(2);
    expect_same(*load(convolution(other, bias, frozen)), *plain, values);
    const auto wide = load(convolution(other, bias, frozen), {.precision = Precision::float64});
    for (const NamedTensor& entry : wide->state()) {
      EXPECT_TRUE(entry.tensor.is_contiguous()) << entry.name;
      EXPECT_EQ(entry.tensor.scalar_type(), torch::kFloat64) << entry.name;
    }
    EXPECT_TRUE(torch::equal(wide->state()[0].tensor, weight.to(torch::kFloat64)));
  }
}

// Two weights and two buffers, x @ (a + b) + c.
torch::jit::Module pair(const torch::Tensor& a, const torch::Tensor& b, const torch::Tensor& c = torch::zeros({2, 2}),
                        const torch::Tensor& d = torch::zeros({2, 2})) {
  torch::jit::Module module("Pair");
  module.register_attribute("training", c10::BoolType::get(), true);
  module.register_parameter("a", a, false);
  module.register_parameter("b", b, false);
  module.register_buffer("c", c);
  module.register_buffer("d", d);
  module.define("def forward(self, x):\n    return torch.matmul(x, self.a + self.b) + self.c + self.d\n");
  return module;
}

std::vector<std::string> marks_of(const Network& network) {
  std::vector<std::string> marks;
  for (const NamedTensor& entry : network.state()) {
    EXPECT_TRUE(entry.tensor.is_contiguous()) << entry.name;
    marks.push_back(entry.name + (entry.trains ? " trains" : "") + (entry.buffer ? " buffer" : ""));
  }
  return marks;
}

TEST_F(Script, TiesWhatIsOneInMemory) {
  const auto square = torch::arange(4, torch::kFloat32).view({2, 2});
  const auto weight = square.t().requires_grad_();  // neither is laid out in rows
  const auto values = torch::tensor({1.0F, 0.0F, -1.0F, 0.5F}).view({2, 2});
  const auto buffer = torch::ones({}).expand({2, 2});
  for (const Precision precision : {Precision::float32, Precision::float64}) {
    const auto network = load(pair(weight, weight, buffer, buffer), {.precision = precision});
    EXPECT_THAT(marks_of(*network), ElementsAre("a trains", "b", "c buffer", "d"));
    const auto state = network->state();
    EXPECT_TRUE(state[1].tensor.is_same(state[0].tensor));
    EXPECT_EQ(state[3].tensor.const_data_ptr(), state[2].tensor.const_data_ptr());
    for (const NamedTensor& entry : state)
      EXPECT_EQ(entry.tensor.scalar_type(), precision == Precision::float64 ? torch::kFloat64 : torch::kFloat32);
    const auto typed = values.to(state[0].tensor.scalar_type());
    const auto matrix = square.t().to(typed.scalar_type());
    EXPECT_TRUE(torch::equal(network->scores(typed), torch::matmul(typed, matrix * 2) + 2));
    network->loss(typed, torch::tensor({0, 1}, torch::kInt64)).backward();
    EXPECT_TRUE(state[0].tensor.grad().is_contiguous());
  }
  const auto fixed = square.t();
  const auto frozen = pair(torch::ones({2, 2}).requires_grad_(), fixed.detach(), fixed, fixed);
  EXPECT_THAT(marks_of(*load(frozen)), ElementsAre("a trains", "b", "c", "d"));
}

TEST_F(Script, KeepsViewsThatLieSideBySide) {
  const auto both = torch::arange(8, torch::kFloat32).view({2, 4});
  const auto left = both.narrow(1, 0, 2).detach().requires_grad_();
  const auto right = both.narrow(1, 2, 2).detach().requires_grad_();
  const auto rows = torch::arange(8, torch::kFloat32).view({4, 2});
  const auto network = load(pair(left, right, rows.narrow(0, 0, 2), rows.narrow(0, 2, 2)));
  EXPECT_THAT(marks_of(*network), ElementsAre("a trains", "b trains", "c buffer", "d buffer"));
  const auto state = network->state();
  write_raw(state[0].tensor);
  EXPECT_TRUE(torch::equal(state[1].tensor, right));
  write_raw(state[2].tensor);
  EXPECT_TRUE(torch::equal(state[3].tensor, rows.narrow(0, 2, 2)));
}

TEST_F(Script, RefusesTensorsThatOverlap) {
  const auto fault = [&](const torch::jit::Module& module) { return fault_of<RequestError>([&] { load(module); }); };
  const auto overlap = [&](const char* a, const char* b, const char* why) {
    return path_.string() + ": '" + a + "' and '" + b + "' share memory, but " + why +
           "; give each a storage of its own, by clone()";
  };
  const char* const kOther = "are not the same there";
  const char* const kGradient = "not a gradient, being two tensors";
  const auto weight = torch::arange(4, torch::kFloat32).view({2, 2}).requires_grad_();
  const auto own = torch::ones({2, 2}).requires_grad_();
  const auto transpose = weight.detach().t().requires_grad_();
  EXPECT_EQ(fault(pair(weight, transpose)), overlap("a", "b", kOther));
  EXPECT_EQ(fault(pair(transpose, weight)), overlap("a", "b", kOther));
  EXPECT_EQ(fault(pair(own, weight, transpose.detach())), overlap("b", "c", kOther));
  EXPECT_EQ(fault(pair(weight, own, weight.detach()[1])), overlap("a", "c", kOther));
  EXPECT_EQ(fault(pair(weight, own, weight.detach()[1][1].expand({2, 2}))), overlap("a", "c", kOther));
  EXPECT_EQ(fault(pair(weight, weight.detach())), overlap("a", "b", kGradient));
  EXPECT_EQ(fault(pair(weight.detach(), weight)), overlap("a", "b", kGradient));
  EXPECT_EQ(fault(pair(weight, own, own.detach())), overlap("b", "c", kGradient));
  const auto columns = torch::zeros({2, 6});
  EXPECT_EQ(fault(pair(weight, own, columns.narrow(1, 0, 2), columns.narrow(1, 1, 2))), overlap("c", "d", kOther));
}

TEST_F(Script, TakesBuffersOfAnyKind) {
  const auto counts = torch::arange(4, torch::kInt64).view({2, 2}).t();
  const auto mask = torch::ones({}, torch::kBool).expand({2, 2});
  const auto weight = torch::ones({2, 2}).requires_grad_(), none = torch::zeros({0, 2}).requires_grad_();
  torch::jit::Module module = pair(weight, torch::ones({2, 2}).requires_grad_(), counts, mask);
  module.register_parameter("none", none, false);
  module.register_buffer("nothing", torch::zeros({0, 2}));
  const auto network = load(module, {.precision = Precision::float64});
  EXPECT_THAT(marks_of(*network),
              ElementsAre("a trains", "b trains", "none trains", "c buffer", "d buffer", "nothing buffer"));
  const auto state = network->state();
  EXPECT_EQ(state[2].tensor.scalar_type(), torch::kFloat64);
  EXPECT_TRUE(torch::equal(state[3].tensor, counts));
  EXPECT_TRUE(torch::equal(state[4].tensor, mask));
  EXPECT_EQ(state[4].tensor.storage().nbytes(), 4U);
}

TEST_F(Script, TrainsInTrainingModeAndScoresInEvaluation) {
  const auto network = load(linear(R"(
    y = torch.linear(x, self.weight, self.bias)
    if self.training:
        y = y + 100.0 * self.bias.add(1.0)[0] * torch.tensor([1.0, 0.0])
    return y
)"));
  const auto labels = torch::tensor({1, 1}, torch::kInt64);
  EXPECT_LT(network->scores(some_rows()).max().item<float>(), 10);
  EXPECT_GT(network->loss(some_rows(), labels).item<float>(), 90);
  EXPECT_LT(network->scores(some_rows()).max().item<float>(), 10);
}

TEST_F(Script, HasItsNumbersInTheAskedPrecision) {
  const auto wide = load(linear(), {.precision = Precision::float64});
  for (const NamedTensor& entry : wide->state()) EXPECT_EQ(entry.tensor.scalar_type(), torch::kFloat64);
  wide->loss(some_rows().to(torch::kFloat64), torch::tensor({0, 1}, torch::kInt64)).backward();
  EXPECT_EQ(wide->state()[0].tensor.grad().scalar_type(), torch::kFloat64);
  const auto rounded = load(linear(), {.precision = Precision::bf16});
  EXPECT_EQ(rounded->scores(some_rows()).scalar_type(), torch::kFloat32);
  rounded->loss(some_rows(), torch::tensor({0, 1}, torch::kInt64)).backward();
  EXPECT_EQ(rounded->state()[0].tensor.grad().scalar_type(), torch::kFloat32);
}

TEST_F(Script, RefusesFilesThatAreNone) {
  const auto fault = [&] { return fault_of<DataError>([&] { load_script(path_, {}); }); };
  EXPECT_THAT(fault(), AllOf(HasSubstr(path_.string()), HasSubstr("there is no such file")));
  std::ofstream(path_) << "not a zip archive";
  EXPECT_THAT(fault(),
              AllOf(HasSubstr(path_.string()), HasSubstr("this is no TorchScript file"), Not(HasSubstr("\n"))));
  torch::jit::Module silent("Silent");
  silent.save(path_.string());
  EXPECT_THAT(fault(), HasSubstr("the module has no forward()"));
  EXPECT_THAT(fault_of<DataError>([&] { draws_random_numbers(path_); }), HasSubstr("no forward()"));
}

TEST_F(Script, RefusesModelsThatCannotBeTrained) {
  const auto fault = [&](const torch::jit::Module& module) { return fault_of<RequestError>([&] { load(module); }); };
  const std::string body = "    return torch.linear(x, self.weight, self.bias)\n";
  EXPECT_THAT(fault(linear(body, torch::kFloat64)), HasSubstr("parameter weight is Double and not float32"));
  torch::jit::Module constant("Constant");
  constant.define("def forward(self, x):\n    return x\n");
  EXPECT_THAT(fault(constant), HasSubstr("nothing to train"));
  const auto pair = load(linear("    return (x, x)\n"));
  EXPECT_THAT(fault_of<RequestError>([&] { pair->scores(some_rows()); }), HasSubstr("forward() returned Tuple"));
  const auto flat = load(linear("    return x.sum()\n"));
  EXPECT_THAT(fault_of<RequestError>([&] { flat->scores(some_rows()); }), HasSubstr("fewer than 2 dimensions"));
}

TEST_F(Script, TellsWhetherItDrawsRandomNumbers) {
  for (const char* body : {
           "    return torch.dropout(x, 0.5, self.training)\n",
           "    return torch.dropout(x, 0.5, True)\n",
           "    return torch.feature_dropout(x, 0.1, self.training)\n",
           "    return x + torch.rand_like(x)\n",
           "    return x * torch.bernoulli(x)\n",
           "    return x + torch.randn([3])\n",
           "    return torch.normal(x, 1.0)\n",
           "    return torch.rrelu(x, 0.1, 0.3, self.training)\n",
           "    return torch.zeros([3]).uniform_(0.0, 1.0) + x\n",
           "    if self.training:\n        x = x + torch.rand([3])\n    return x\n",
           "    return torch.multinomial(x, 1)\n",
           "    return torch.scaled_dot_product_attention(x, x, x, None, 0.1, False)\n",
       })
    EXPECT_TRUE(draws(body)) << body;
  for (const char* body : {
           "    return torch.linear(x, self.weight, self.bias)\n",
           "    return torch.dropout(x, 0.5, False)\n",
           "    return torch.dropout(x, 0.0, self.training)\n",
           "    return torch.scaled_dot_product_attention(x, x, x, None, 0.0, False)\n",
           "    return torch.batch_norm(x, None, None, None, None, True, 0.1, 1e-5, False)\n",
           "    return torch.norm(x, 2)\n",
       })
    EXPECT_FALSE(draws(body)) << body;
}

TEST_F(Script, LooksIntoWhatForwardCalls) {
  torch::jit::Module root("Root");
  root.register_module("inner", linear("    return torch.dropout(x, 0.5, self.training)\n"));
  root.define("def forward(self, x):\n    return self.inner.forward(x)\n");
  root.save(path_.string());
  EXPECT_TRUE(draws_random_numbers(path_));
  torch::jit::Module other("Other");
  other.register_module("inner", linear("    return torch.dropout(x, 0.5, self.training)\n"));
  other.define("def forward(self, x):\n    return x\n");
  other.save(path_.string());
  EXPECT_FALSE(draws_random_numbers(path_));
}

}  // namespace
}  // namespace sumpter
