// What the replicas' threads of one training run share, and each thread's way through its steps.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/trace.h"
#include "input/ring.h"
#include "sumpter/exchange.h"
#include "sumpter/train.h"
#include "train/checkpoint.h"
#include "train/replica.h"

namespace sumpter {

// What is trained, however it came to be.
struct Job {
  // Called once for each replica, in the order of ranks, by the thread that makes the run.
  std::function<std::unique_ptr<Network>()> make_network;
  InputOptions input;
  bool default_generator = false;  // the networks draw from torch's default generator
  bool may_try = true;             // a network of its own may be made to see what memory it takes
  nlohmann::ordered_json facts;    // of the model, for checkpoints
};

// What a replica tells the others of a step. Written before its gradients are announced and read after the step's
// exchange, which orders the two; two sets take turns, because a replica that is done may be one step ahead.
struct alignas(64) ReplicaReport {
  double loss = 0;    // the mean over its rows, times their share of all rows
  bool stop = false;  // it has seen the wish to stop
  bool save = false;  // rank 0: a checkpoint is due after this step
};

// A replica at the end of a step, for a checkpoint. The step's arrays are not copied: the replica waits meanwhile.
struct ReplicaSnapshot {
  ReplicaExtras extras;
  std::vector<StateArray> step;
};

// What remains of a replica.
struct ReplicaOutcome {
  std::uint64_t chunks = 0, overflows = 0;
  double share_exchange = 0, share_input = 0;  // of the time in steps
};

class Run {
 public:
  // Throws RequestError for what does not fit together.
  Run(Job run_job, const RunOptions& run_options, TrainListener& run_listener, const std::atomic<bool>& wish_to_stop);

  // Until the last step, or until it is stopped; then what is asked for is written. Throws what a replica threw.
  RunResult run();

  const Job job;
  const RunOptions& options;
  TrainListener& listener;
  const std::atomic<bool>& stop;

  std::uint64_t steps_per_epoch;
  std::uint64_t steps;
  std::optional<CheckpointFolder> checkpoints;
  nlohmann::ordered_json facts;  // where there are checkpoints
  // By rank, all the same: where the run goes on from, null where it begins. Each replica lets go of its own once it
  // has what it needs, for a checkpoint is large.
  std::vector<std::shared_ptr<const LoadedCheckpoint>> loaded;
  std::uint64_t first_step;
  bool evaluation_is_missing = false;              // the checkpoint was written before that of its last step
  std::vector<std::unique_ptr<Network>> networks;  // by rank; with update=host all on one set of parameters
  std::unique_ptr<Trace> trace;                    // null: none
  std::unique_ptr<StepContext> context;
  Group group;
  BatchRing ring;
  std::vector<std::optional<Exchange>> exchanges;  // by rank; they live on until all threads have ended
  std::array<std::vector<ReplicaReport>, 2> reports;
  std::vector<ReplicaSnapshot> snapshots;
  std::vector<ReplicaOutcome> outcomes;
  RunResult result;  // rank 0's

  // The first step of the timeline: so many after the first, as far as there are.
  std::uint64_t first_traced() const { return first_step + std::min(options.trace.first_step, steps - first_step - 1); }

 private:
  // A thread's whole life.
  void run_replica(int rank);
  // Keeps the first error and makes the other replicas raise.
  void fail(int rank, std::exception_ptr error);
  // Throws the first error with its replica's number, if there was one.
  void rethrow() const;
  void run_threads();
  void write_trace() const;
  void go_on_from(const LoadedCheckpoint& checkpoint);
  void count();

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
  bool all_steps();
  // The part of the batch that is this replica's: forward and, once the step before is settled, backward. False when
  // the run ends before this step.
  bool step(std::uint64_t number);
  // Ends the step under way, if there is one. False when the run ends with it: stopped, or with a loss
  // that is not finite.
  bool settle();
  void report(StepReport& report, bool stopped);
  // False when the run is stopped meanwhile.
  bool evaluate();
  Score evaluate_own_rows();
  // Rank 0 writes a checkpoint of the steps that are done, all others wait. What fails is logged and counted. `last`:
  // training does not go on.
  void save(bool best, bool last);
  bool save_is_due(std::uint64_t number);

  Run& run_;
  const int rank_;
  Exchange& exchange_;
  Replica replica_;
  std::optional<StepReport> under_way_;
  std::uint64_t done_ = 0;   // steps
  std::uint64_t saved_ = 0;  // steps that were done at the last checkpoint
  bool save_due_ = false, finite_ = true;
  std::optional<double> best_top1_;  // of all evaluations; every replica knows it
  Clock::time_point step_began_, last_save_;
  double exchange_before_ = 0;  // seconds in the exchange when the step began
  double seconds_ = 0, seconds_input_ = 0;
};

}  // namespace sumpter
