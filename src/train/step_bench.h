// Replicas that do the same step over and over on made-up rows, for `sumpter bench train`. Free of torch.
#pragma once

#include <cstddef>
#include <memory>

#include "spec/plan.h"
#include "train/catalogue.h"

namespace sumpter {

struct StepBenchOptions {
  ModelSpec model;
  Plan plan;
  bool exchange = true;   // false: replicas know nothing of each other, and apply the optimizer to their own gradients
  std::size_t rows = 16;  // of each replica
  ImageShape shape = {};  // of each row; none: the model's usual one
  int threads_per_replica = 1;
};

// A whole step: forward, backward, exchange, update.
class BenchReplica {
 public:
  BenchReplica() = default;
  BenchReplica(const BenchReplica&) = delete;
  BenchReplica& operator=(const BenchReplica&) = delete;
  virtual ~BenchReplica() = default;
  // Blocks until the update is done. With an exchange, all replicas step together.
  virtual void step() = 0;
};

class StepBench {
 public:
  // Throws RequestError for a plan that is out of range. Sets the process's malloc for training.
  explicit StepBench(const StepBenchOptions& options);
  ~StepBench();
  StepBench(const StepBench&) = delete;
  StepBench& operator=(const StepBench&) = delete;

  // A replica, for the calling thread alone; waits for all others to join. Must not outlive this.
  std::unique_ptr<BenchReplica> join(int rank);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sumpter
