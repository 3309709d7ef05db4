// A training run, without torch: what it is asked for, what it reports on the way, and what remains of it. trainer.h
// has the Trainer, for models of your own; `sumpter train` is the same engine.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "sumpter/error.h"
#include "sumpter/input.h"
#include "sumpter/spec.h"

namespace sumpter {

// What parameters are kept and computed in. bf16 is torch's autocast: parameters stay float32, and what gains by it is
// computed in bf16.
enum class Precision : std::uint8_t { float32, float64, bf16 };

struct CheckpointOptions {
  std::filesystem::path directory = {};       // empty: none are read or written
  std::uint64_t every_steps = 0;              // 0: not by steps
  std::chrono::milliseconds every_time = {};  // 0: not by time
  int keep = 3;         // the newest ones, and the best by validation besides; one is always written at the end
  bool resume = false;  // go on from the newest one, bit for bit; begin anew where there is none
};

struct TraceOptions {
  std::filesystem::path file = {};           // Chrome trace JSON; empty: none
  std::uint64_t first_step = 2, steps = 10;  // what is recorded
};

struct RunOptions {
  DatasetPair data = {};
  Plan plan = {};
  std::size_t batch_size = 128;  // rows of a step over all replicas
  std::uint64_t epochs = 0;      // exactly one of epochs and steps is more than 0
  std::uint64_t steps = 0;
  int threads_per_replica = 1;
  OptimizerOptions optimizer = {};
  Schedule schedule = {};
  Precision precision = Precision::float32;
  double label_smoothing = 0;                  // 0 to 1, as torch's cross_entropy has it
  int image_size = 0;                          // images are resized to squares of so many pixels; 0: as they are
  std::uint64_t seed = 0;                      // of parameters, dropout and the order of rows
  std::filesystem::path initial_weights = {};  // a safetensors file to begin from; empty: none
  std::filesystem::path weights = {};          // a safetensors file for the final parameters; empty: none
  bool digest = false;
  CheckpointOptions checkpoint = {};
  TraceOptions trace = {};
  bool go_on_when_not_finite = false;   // with a loss that is infinite or NaN
  bool allow_nondeterministic = false;  // TorchScript that draws random numbers, on several replicas of one process
};

// Bytes that a run needs, told before its first step.
struct Footprint {
  std::size_t parameters = 0;  // of one replica, buffers included
  std::size_t gradients = 0;   // of one replica
  std::size_t optimizer = 0;   // of one replica: the optimizer's state
  std::size_t feedback = 0;    // of one replica: what wire formats lost
  std::optional<std::size_t> activations =
      {};                  // of one replica: tried on a few rows and scaled; none where that failed
  std::size_t shared = 0;  // update=host: the one set of parameters and optimizer state that all replicas use
  std::size_t input = 0;   // batches loaded ahead
  std::size_t arena = 0;   // of the exchange
  int replicas = 0;

  std::size_t of_replica() const { return parameters + gradients + optimizer + feedback + activations.value_or(0); }
  std::size_t all() const { return static_cast<std::size_t>(replicas) * of_replica() + shared + input + arena; }
};

struct RunStart {
  std::uint64_t steps = 0, steps_per_epoch = 0;
  std::uint64_t first_step = 0;  // more than 0 in a run that goes on from a checkpoint
  Footprint memory = {};
};

// A finished step. Times are rank 0's.
struct StepReport {
  std::uint64_t step = 0;  // counted from 0
  std::uint64_t epoch = 0;
  std::size_t rows = 0;  // over all replicas
  double loss = 0;       // the mean over these rows
  double learning_rate = 0;
  double gradient_norm = 0;     // before clipping; 0 where nothing is clipped
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
  double top1 = 0;  // the share of predictions (one a row; of text, one a byte) that are right
};

struct RunResult {
  std::uint64_t steps = 0;                     // done, those before a checkpoint included
  std::uint64_t first_step = 0;                // where this run began
  std::size_t rows = 0;                        // trained on by this run, over all replicas
  double loss = 0;                             // of the last step
  bool stopped = false;                        // by the caller, before its end
  double seconds = 0;                          // of the steps, evaluations and checkpoints left out
  double share_exchange = 0, share_input = 0;  // of the steps' time, the mean over replicas
  std::optional<Evaluation> evaluation;        // of the final parameters; none where there is no test set, or stopped
  std::optional<Evaluation> best;              // by top1, of all evaluations, those before a checkpoint included
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
  std::uint64_t overflows = 0;           // finite gradients that gradient_wire could not hold, over all replicas
  std::uint64_t checkpoints = 0, checkpoints_failed = 0;
  Footprint memory;
  std::size_t step_memory = 0;  // bytes of gradients and activations that rank 0's first step really held
};

// Told of progress by rank 0's thread, which waits meanwhile. What it throws ends the run.
class TrainListener {
 public:
  TrainListener() = default;
  TrainListener(const TrainListener&) = delete;
  TrainListener& operator=(const TrainListener&) = delete;
  virtual ~TrainListener() = default;
  virtual void began(const RunStart& /*start*/) {}
  virtual void stepped(const StepReport& /*report*/) {}
  virtual void evaluated(const Evaluation& /*evaluation*/) {}
  // A checkpoint after so many steps is on the disk.
  virtual void saved(const std::filesystem::path& /*directory*/, std::uint64_t /*steps*/) {}
};

}  // namespace sumpter
