// Training runs, for the command: options in, a result out, progress told to a listener on the way. Free of torch.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "input/dataset.h"
#include "kernels/kernels.h"
#include "spec/plan.h"
#include "sumpter/exchange.h"
#include "train/catalogue.h"

namespace sumpter {

struct TrainOptions {
  ModelSpec model;
  DatasetPair data;
  Plan plan;
  std::size_t batch_size = 128;  // rows of a step over all replicas
  std::uint64_t epochs = 0;      // exactly one of epochs and steps is more than 0
  std::uint64_t steps = 0;
  int threads_per_replica = 1;
  kernels::Sgd optimizer;
  std::uint64_t seed = 0;
  bool digest = false;
  std::filesystem::path weights;  // a safetensors file for the final parameters; empty: none
};

// A finished step. Times are rank 0's.
struct StepReport {
  std::uint64_t step = 0;  // counted from 0
  std::uint64_t epoch = 0;
  std::size_t rows = 0;         // over all replicas
  double loss = 0;              // the mean over these rows
  double seconds = 0;           // since the step before
  double seconds_exchange = 0;  // of them: waiting for other replicas, summing and updating
  double seconds_input = 0;     // of them: waiting for rows
};

// The model on the whole test set.
struct Evaluation {
  std::uint64_t step = 0;  // steps done before
  std::uint64_t epoch = 0;
  std::size_t rows = 0;
  double loss = 0;  // the mean
  double top1 = 0;  // the share of rows whose highest score is their label's
};

struct RunResult {
  std::uint64_t steps = 0;                     // done
  std::size_t rows = 0;                        // trained on, over all replicas
  double loss = 0;                             // of the last step
  bool stopped = false;                        // by the caller, before its end
  double seconds = 0;                          // of the steps, evaluations left out
  double share_exchange = 0, share_input = 0;  // of the steps' time, the mean over replicas
  std::optional<Evaluation> evaluation;        // of the final parameters; none where there is no test set, or stopped
  std::string digest;                          // where asked for

  // What the options did. Pieces and bytes are those of gradients and of the few numbers that evaluation exchanges.
  std::uint64_t parameters = 0;
  std::uint64_t chunks_per_step = 0;
  std::uint64_t chunks = 0;  // exchanged by rank 0
  std::uint64_t pieces = 0;  // summed, by all threads
  std::uint64_t bytes = 0;   // read for them
  std::vector<std::uint64_t> pieces_of_replicas;
  std::vector<std::uint64_t> pieces_of_reducers;
  std::uint64_t most_batches_ready = 0;  // ahead of use, at any time
};

// Told of progress by rank 0's thread, which waits meanwhile. What it throws ends the run.
class TrainListener {
 public:
  TrainListener() = default;
  TrainListener(const TrainListener&) = delete;
  TrainListener& operator=(const TrainListener&) = delete;
  virtual ~TrainListener() = default;
  // `steps` in all, `per_epoch` of them.
  virtual void began(std::uint64_t steps, std::uint64_t per_epoch) = 0;
  virtual void stepped(const StepReport& report) = 0;
  virtual void evaluated(const Evaluation& evaluation) = 0;
};

// Trains with plan.replicas threads, and evaluates after each epoch and at the end; blocks until that is done. `stop`
// may be set from anywhere, a signal handler too: the step under way is finished, weights are written, nothing is
// evaluated. Throws RequestError before anything has begun, DataError from the data, Error where the loss is not finite
// (no weights are written), and what a replica threw, with its rank. The process's malloc and torch's default random
// generator are set for training.
RunResult train(const TrainOptions& options, TrainListener& listener, const std::atomic<bool>& stop);

}  // namespace sumpter
