// One training step without the model: gradients are announced as backward finishes them, chunks count down, each
// chunk's exchange starts when its last gradient is final, and the optimizer runs on every replica (update=device) or
// in the summing thread, on the one shared set of parameters (update=host). src/train fills it with a model, `sumpter
// bench train` too; nothing here knows torch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/kernels.h"
#include "spec/plan.h"
#include "step/chunks.h"
#include "sumpter/exchange.h"

namespace sumpter {

struct StepOptions {
  ChunkRule chunk = {};
  Update update = Update::device;
  kernels::Sgd optimizer = {};
};

// What the replicas of one run share: the order in which backward finishes the parameters (found by rank 0 on the first
// step), the chunks made from it, and with update=host the parameters' addresses and the optimizer's state. Outlives
// the ReplicaSteps.
class StepContext {
 public:
  // `host_parameters`: with update=host one address for each parameter, read by all replicas and written by the update;
  // empty with update=device. Throws RequestError when the numbers do not fit.
  StepContext(std::vector<ParameterInfo> parameters, const StepOptions& options,
              std::span<float* const> host_parameters);
  ~StepContext();
  StepContext(const StepContext&) = delete;
  StepContext& operator=(const StepContext&) = delete;

  const std::vector<ParameterInfo>& parameters() const { return parameters_; }
  const StepOptions& options() const { return options_; }
  // Empty until the first step has found the order.
  const std::vector<Chunk>& chunks() const { return chunks_; }

 private:
  friend class ReplicaStep;
  class HostUpdate;

  void settle_order(std::span<const int> finished);

  std::vector<ParameterInfo> parameters_;
  StepOptions options_;
  std::vector<float*> host_parameters_;
  std::vector<std::vector<float>> host_momentum_;
  std::vector<Chunk> chunks_;
  std::vector<std::size_t> chunk_of_;                      // by parameter
  std::vector<std::unique_ptr<HostUpdate>> host_updates_;  // by chunk
};

// One replica's side of the steps; used by that replica's thread alone, in this order each step: begin_step
// (after forward, before backward), gradient_final as backward goes on, backward_done; then wait_for_parameter as the
// next forward reads them, or finish.
// Whatever the exchange throws comes out of backward_done, wait_for_parameter and finish; the group is aborted then.
class ReplicaStep {
 public:
  // `parameters`: this replica's own parameters (update=device), which the optimizer writes; empty with update=host.
  ReplicaStep(StepContext& context, Exchange& exchange, std::span<float* const> parameters);
  // In the middle of a step it aborts the group, so that no other replica waits for this one.
  ~ReplicaStep();
  ReplicaStep(const ReplicaStep&) = delete;
  ReplicaStep& operator=(const ReplicaStep&) = delete;

  // `rows`: this replica's rows of the batch. Finishes the step before, if that has not been done.
  void begin_step(std::uint64_t rows);
  // The gradient of one parameter is final; `data` holds its elements, contiguous, and stays where it is until
  // finish(), the next begin_step, or the end of this object. Waits for other
  // members only where it is 64 chunks ahead of them. Throws RequestError for
  // a second gradient of a parameter.
  void gradient_final(int parameter, float* data);
  // All gradients that this step will have are there. A replica with rows must have announced every one (RequestError
  // names the missing parameter); one without rows announces none.
  void backward_done();
  // Blocks until the parameter has its new value, and all of its layer. Helps with the work meanwhile.
  void wait_for_parameter(int parameter);
  // Blocks until the whole update is done and no gradient is read any more.
  void finish();

  // Seconds that this replica spent in backward_done, wait_for_parameter and finish, over all steps: waiting, summing
  // and updating.
  double seconds_in_exchange() const { return seconds_in_exchange_; }
  // Chunks that this replica has exchanged.
  std::uint64_t chunks_exchanged() const { return chunks_exchanged_; }

 private:
  struct ChunkState;

  void settle_order();
  void require_all_gradients() const;
  void launch_ready_chunks();
  void launch(std::size_t chunk);
  void provide_room_for_results();
  void complete(std::size_t chunk);

  StepContext& context_;
  Exchange& exchange_;
  std::vector<float*> parameters_;
  std::vector<std::vector<float>> momentum_;
  std::vector<float*> gradients_;
  std::vector<std::vector<float>> room_;  // for the results of steps in which this replica has no rows
  std::vector<int> finished_;             // parameters in the order of this step's announcements
  std::vector<ChunkState> chunks_;
  std::size_t next_launch_ = 0;
  std::uint64_t rows_ = 0;
  bool order_settled_ = false;  // only then may this replica's thread look at the context's chunks
  bool under_way_ = false;
  double seconds_in_exchange_ = 0;
  std::uint64_t chunks_exchanged_ = 0;
};

}  // namespace sumpter
