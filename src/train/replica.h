// One copy of the model and its side of a step: forward, loss, backward. Gradients are announced to the step as
// autograd leaves them, and are dropped after it, so that autograd hands over fresh ones: no pass zeroes or copies
// them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/trace.h"
#include "input/split.h"
#include "step/step.h"
#include "train/inputs.h"
#include "train/network.h"

namespace sumpter {

// The sums over some rows.
struct Score {
  double loss = 0;          // the rows' losses, each a mean over its predictions
  std::uint64_t right = 0;  // predictions whose highest score is their label's
  std::uint64_t predictions = 0;
};

struct ReplicaOptions {
  InputOptions input;
  int accumulate = 1;              // parts that the rows of a step are cut into, one forward and backward each
  std::uint64_t seed = 0;          // of dropout
  bool default_generator = false;  // the network draws from torch's default generator, whose state is then kept too
  Trace* trace = nullptr;
};

// What a replica has besides its parameters: buffers, and where the network draws from it the state of torch's default
// generator. Copies, in the order of the network's buffers.
struct ReplicaExtras {
  std::vector<NamedTensor> buffers;
  std::optional<torch::Tensor> generator;
};

// Used by one thread, in this order: forward, finish, backward, for each step; finish once more at the end.
class Replica {
 public:
  // Hooks itself into the network, whose parameters lie where they will stay.
  Replica(Network& network, StepContext& context, Exchange& exchange, const ReplicaOptions& options);
  ~Replica();
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  // The mean loss over the rows of step number `step`, while the step before still updates parameters: waits for each
  // layer's. All parts but the last are taken backward too, which waits for the end of the step before. The rows are
  // not needed any more afterwards. Without rows it does nothing and the loss is 0.
  double forward(const Rows& rows, std::uint64_t step);
  // Waits for the end of the step before and drops its gradients.
  void finish();
  // Begins the exchange of the last forward's gradients while they come.
  void backward();
  // Changes nothing that is trained. After finish.
  Score evaluate(const Rows& rows);

  // As they were at the end of the last finished step: without what a forward has done since.
  ReplicaExtras extras() const;
  // Takes back what a forward since the last finished step has done; the run ends there.
  void withdraw();

  ReplicaStep& step() { return step_; }
  const ReplicaStep& step() const { return step_; }
  // Those that train, as the step numbers them.
  const std::vector<NamedTensor>& parameters() const { return parameters_; }

 private:
  class GradientHook;

  void wait_for(const void* layer);
  void gradient_final(int parameter);
  ReplicaExtras current_extras() const;
  double forward_part(const Rows& rows, RowRange part, int number);

  Network& network_;
  const ReplicaOptions options_;
  const int rank_;
  std::vector<NamedTensor> parameters_;
  std::vector<NamedTensor> buffers_;
  ReplicaStep step_;
  std::uint64_t number_ = 0;  // of the step
  std::uint64_t rows_ = 0;
  torch::Tensor loss_;       // of the last part, times its share of the rows; its backward is to come
  bool announcing_ = false;  // gradients are final, not parts of a sum that goes on
  bool holds_gradients_ = false;
  std::optional<ReplicaExtras> before_forward_;  // while a forward's backward is to come
};

// While it lives, a network's buffers have the numbers of another one's, as for an evaluation, which is rank 0's.
class BorrowedBuffers {
 public:
  BorrowedBuffers(const Network& network, const Network& lender);
  BorrowedBuffers(const BorrowedBuffers&) = delete;
  BorrowedBuffers& operator=(const BorrowedBuffers&) = delete;
  ~BorrowedBuffers();

 private:
  std::vector<NamedTensor> buffers_;
  std::vector<torch::Tensor> own_;
};

// The state of torch's default generator, a copy; and setting it.
torch::Tensor generator_state();
void set_generator_state(const torch::Tensor& state);

// Those of the network's tensors that train; those that a loss may change besides.
std::vector<NamedTensor> trained(const Network& network);
std::vector<NamedTensor> buffers_of(const Network& network);

// Addresses of the tensors' data, in their order.
std::vector<void*> addresses_of(const std::vector<NamedTensor>& tensors);

// Gives all networks the numbers of the first. With update=host they share its parameters' memory; buffers stay each
// one's own.
void unify(std::span<const std::unique_ptr<Network>> networks, Update update);

// For replicas of such networks.
struct ContextOptions {
  const Plan& plan;
  const OptimizerOptions& optimizer;
  const Schedule& schedule;
  Precision precision = Precision::float32;
  Trace* trace = nullptr;
};
std::unique_ptr<StepContext> make_context(const Network& network, const ContextOptions& options);

}  // namespace sumpter
