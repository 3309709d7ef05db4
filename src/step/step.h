// One training step without the model: gradients are announced as backward finishes them, chunks count down, each
// chunk's exchange starts when its last gradient is final, and the optimizer runs on every replica (update=device) or
// in the summing thread, on the one shared set of parameters (update=host). Where the update must know all sums before
// it writes anything, it is a second pass over them. src/train fills the step with a model, `sumpter bench train` too;
// nothing here knows torch.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/trace.h"
#include "step/arrays.h"
#include "step/blocks.h"
#include "step/chunks.h"
#include "step/gradient_wire.h"
#include "step/host_parameters.h"
#include "step/optimizer.h"
#include "sumpter/exchange.h"

namespace sumpter {

struct StepOptions {
  ChunkRule chunk = {};
  Update update = Update::device;
  ElementType type = ElementType::f32;  // or f64: of parameters, gradients and state
  WireFormat gradient_wire = WireFormat::f32;
  WireFormat parameter_wire = WireFormat::f32;  // update=host
  bool error_feedback = false;
  OptimizerOptions optimizer = {};
  Schedule schedule = {};
  Trace* trace = nullptr;  // not owned; outlives the steps
};

// What the replicas of one run share: the order in which backward finishes the parameters (found by rank 0 on the first
// step), the chunks made from it, and with update=host the parameters and the optimizer's state. Outlives the
// ReplicaSteps.
class StepContext {
 public:
  // `host_parameters`: with update=host one address for each parameter, read by all replicas and written by the update;
  // empty with update=device. Throws RequestError where the numbers do not fit, or options do not fit together or the
  // model.
  StepContext(std::vector<ParameterInfo> parameters, const StepOptions& options,
              std::span<void* const> host_parameters);
  ~StepContext();
  StepContext(const StepContext&) = delete;
  StepContext& operator=(const StepContext&) = delete;

  const std::vector<ParameterInfo>& parameters() const { return parameters_; }
  const StepOptions& options() const { return options_; }
  // Empty until the first step has found the order.
  const std::vector<Chunk>& chunks() const { return chunks_; }

  // update=host: the address of a parameter's true value: a float32 copy where parameter_wire is not f32, else what
  // replicas read.
  void* parameter(std::size_t index);
  // update=host: replicas see the true values again, after parameter() was written from outside (a checkpoint). No step
  // may be under way.
  void refresh();
  // update=host: the optimizer's state; empty otherwise. Read and written between steps only.
  std::vector<StateArray> state();

 private:
  friend class ReplicaStep;
  class HostUpdate;

  bool on_host() const { return options_.update == Update::host; }
  void settle_order(std::span<const int> finished);

  std::vector<ParameterInfo> parameters_;
  StepOptions options_;
  // Whether sums are written back first and all updated afterwards: to clip, all of them must be known; the exchange
  // hands on float32 only; and it does not keep to the blocks in which i8 rounds parameters.
  bool two_pass_;
  std::vector<Chunk> chunks_;
  std::vector<std::size_t> chunk_of_;  // by parameter
  GradientBlocks blocks_;

  // update=host.
  std::optional<Optimizer> optimizer_;
  HostParameters host_parameters_;
  std::vector<std::unique_ptr<SumConsumer>> host_updates_;  // by chunk; none in two passes
  std::vector<double> squares_;                             // by block; each replica writes those of its share
  std::atomic<std::uint64_t> number_{0};                    // of the step under way
};

// What a replica knows of a step before its backward pass.
struct StepStart {
  std::uint64_t rows = 0;    // this replica's rows of the batch
  std::uint64_t number = 0;  // of the step, from 0, the same on all replicas: for the schedule and Adam's corrections
};

// One replica's side of the steps; used by that replica's thread alone, in this order each step: begin_step
// (after forward, before backward), gradient_final as backward goes on, backward_done; then wait_for_parameter as the
// next forward reads them, or finish.
// Whatever the exchange throws comes out of backward_done, wait_for_parameter and finish; the group is aborted then.
class ReplicaStep {
 public:
  // `parameters`: this replica's own parameters (update=device), which the optimizer writes; empty with update=host.
  ReplicaStep(StepContext& context, Exchange& exchange, std::span<void* const> parameters);
  // In the middle of a step it aborts the group, so that no other replica waits for this one.
  ~ReplicaStep();
  ReplicaStep(const ReplicaStep&) = delete;
  ReplicaStep& operator=(const ReplicaStep&) = delete;

  // Finishes the step before, if that has not been done.
  void begin_step(const StepStart& start);
  // The gradient of one parameter is final; `data` holds its elements, contiguous, and stays where it is until
  // finish(), the next begin_step, or the end of this object; it is written to: by the rounding to a lossy wire, and by
  // the mean. Waits for other members only where it is 64 chunks ahead of them. Throws RequestError for a second
  // gradient of a parameter.
  void gradient_final(int parameter, void* data);
  // All gradients that this step will have are there. A replica with rows must have announced every one (RequestError
  // names the missing parameter); one without rows announces none.
  void backward_done();
  // Blocks until the parameter has its new value, and all of its layer; in two passes, until all have. Helps with the
  // work meanwhile.
  void wait_for_parameter(int parameter);
  // Blocks until the whole update is done and no gradient is read any more.
  void finish();

  // update=device: the optimizer's state. Either way what this replica's error feedback keeps: "feedback.up.*", and
  // with update=device "feedback.down.*", which is the same on all replicas. Between steps only.
  std::vector<StateArray> state();
  // The 2-norm of all gradients' mean in the last finished step, before clipping; 0 without clip_norm.
  double gradient_norm() const { return norm_; }
  // Finite gradients that the wire format could not hold, over all steps: this replica's own; rank 0 counts those of
  // the returned mean too, which are the same on all replicas, so that a sum over replicas counts each once.
  std::uint64_t overflows() const;

  // Seconds that this replica spent in backward_done, wait_for_parameter and finish, over all steps: waiting, summing
  // and updating.
  double seconds_in_exchange() const { return seconds_in_exchange_; }
  // Chunks that this replica has exchanged.
  std::uint64_t chunks_exchanged() const { return chunks_exchanged_; }

 private:
  struct ChunkState;

  bool tracing() const;
  void settle_order();
  void require_all_gradients() const;
  void launch_ready_chunks();
  void launch(std::size_t chunk);
  void round_to_wire(std::size_t chunk, GradientWire& wire);
  void provide_room_for_results();
  void complete(std::size_t chunk);
  void update_chunk(std::size_t chunk);
  void second_pass();
  double find_clip_scale(BlockRange own);
  void update(const Stretch& stretch, double gradient_scale);

  StepContext& context_;
  Exchange& exchange_;
  std::string row_;  // of the trace: "chunks of replica 0"
  std::vector<void*> parameters_;
  std::optional<Optimizer> optimizer_;  // update=device
  std::vector<double> squares_;         // update=device
  GradientWire up_, down_;
  std::vector<void*> gradients_;
  ParameterArrays room_;       // for the results of steps in which this replica has no rows
  std::vector<int> finished_;  // parameters in the order of this step's announcements
  std::vector<ChunkState> chunks_;
  std::size_t next_launch_ = 0;
  StepStart start_;
  bool order_settled_ = false;  // only then may this replica's thread look at the context's chunks
  bool under_way_ = false;
  double norm_ = 0;
  double seconds_in_exchange_ = 0;
  std::uint64_t chunks_exchanged_ = 0;
};

}  // namespace sumpter
