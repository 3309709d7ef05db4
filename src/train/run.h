// What the replicas' threads of one training run share, and each thread's way through its steps.
#pragma once

#include <array>
#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "input/ring.h"
#include "train/replica.h"
#include "train/train.h"

namespace sumpter {

// What a replica tells the others of a step. Written before its gradients are announced and read after the step's
// exchange, which orders the two; two sets take turns, because a replica that is done may be one step ahead.
struct alignas(64) ReplicaReport {
  double loss = 0;    // the mean over its rows, times their share of all rows
  bool stop = false;  // it has seen the wish to stop
};

// What remains of a replica.
struct ReplicaOutcome {
  std::uint64_t chunks = 0;
  double share_exchange = 0, share_input = 0;  // of the time in steps
};

struct Run {
  // Throws RequestError for what does not fit together.
  Run(const TrainOptions& run_options, TrainListener& run_listener, const std::atomic<bool>& wish_to_stop);

  // A thread's whole life.
  void run_replica(int rank);
  // Keeps the first error and makes the other replicas raise.
  void fail(int rank, std::exception_ptr error);
  // Throws the first error with its replica's number, if there was one.
  void rethrow() const;

  const TrainOptions& options;
  TrainListener& listener;
  const std::atomic<bool>& stop;

  std::uint64_t steps_per_epoch;
  std::uint64_t steps;
  std::vector<std::shared_ptr<Model>> models;  // by rank; with update=host all on one set of parameters
  std::unique_ptr<StepContext> context;
  Group group;
  BatchRing ring;
  std::vector<std::optional<Exchange>> exchanges;  // by rank; they live on until all threads have ended
  std::array<std::vector<ReplicaReport>, 2> reports;
  std::vector<ReplicaOutcome> outcomes;
  RunResult result;  // rank 0's

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
  int culprit_ = 0;
};

// One replica's thread.
class Worker {
 public:
  Worker(Run& run, int rank, Exchange& exchange);
  // All steps, and the evaluations between and after them.
  void train();

 private:
  // The part of the batch that is this replica's: forward and, once the step before is settled, backward. False when
  // the run ends before this step.
  bool step(std::uint64_t number);
  // Ends the step under way, if there is one. False when the run ends with it: stopped, or with a loss
  // that is not finite.
  bool settle();
  // False when the run is stopped meanwhile.
  bool evaluate();
  Score evaluate_own_rows();

  Run& run_;
  const int rank_;
  Exchange& exchange_;
  Replica replica_;
  std::optional<StepReport> under_way_;
  Clock::time_point step_began_;
  double exchange_before_ = 0;  // seconds in the exchange when the step began
  double seconds_ = 0, seconds_input_ = 0;
};

}  // namespace sumpter
