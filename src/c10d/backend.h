// The torch.distributed backend `sumpter`: torch's collectives on the exchange, and on an inner Gloo group what the
// exchange does not do itself (gather, scatter, all_to_all, send, recv).
#pragma once

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "base/trace.h"
#include "c10d/arena_tensors.h"
#include "c10d/arguments.h"
#include "c10d/choice.h"
#include "c10d/completer.h"
#include "c10d/inner_group.h"
#include "c10d/options.h"
#include "c10d/wire.h"
#include "c10d/work.h"
#include "sumpter/exchange.h"

namespace sumpter {

struct BackendSettings {
  int rank = 0;
  int size = 1;
  std::chrono::milliseconds timeout{0};  // the group's; options may have their own
  c10::intrusive_ptr<BackendOptions> options;
  std::optional<Choice> known_choice;  // what this process found for an earlier group
  InnerGroup::Make make_inner;
};

// What a group is and has done so far.
struct BackendStatus {
  int rank = 0;
  std::vector<std::int64_t> processes;  // by rank
  std::size_t arena_bytes = 0, bucket_bytes = 0;
  std::uint64_t buckets_made = 0;
  int reducers = 0;
  std::vector<int> reducer_cores;
  Choice choice;
  std::string wire;
  std::size_t piece = 0;
  double timeout = 0, connect_timeout = 0;  // seconds
  ExchangeCounters counters;
  std::uint64_t overflows = 0;  // finite values that did not survive the wire format
  bool inner_made = false;
};

// Any thread may call; those of one group in the same order on every rank. Faults of the group come out as
// DistBackendError, in the call or where the operation is waited for; wrong arguments as ValueError, in the call.
class SumpterBackend : public c10d::Backend {
 public:
  // Blocks until all ranks have come. Throws DistBackendError.
  SumpterBackend(const c10::intrusive_ptr<c10d::Store>& store, BackendSettings settings);
  ~SumpterBackend() override;

  const std::string getBackendName() const override { return kBackendName; }
  c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override { return settings_.options; }
  void setTimeout(std::chrono::milliseconds timeout) override { timeout_.store(timeout.count()); }
  void setSequenceNumberForGroup() override {}
  std::uint64_t getSequenceNumberForGroup() override { return sequence_.load(); }
  c10d::ErrorType getError() override;
  // What is under way is finished first, unless the group has been aborted. Nothing can be begun afterwards.
  void shutdown() override;
  void abort() override;

  bool supportsTensorAlloc(c10::DeviceIndex) override { return size_ > 1; }
  at::Tensor allocateTensor(long size, at::TensorOptions options) override;

  // shutdown() for destructors: where operations are under way the group is aborted, so that nobody waits for this
  // rank.
  void close() noexcept;

  BackendStatus status();
  const Choice& choice() const { return choice_; }

  using WorkPointer = c10::intrusive_ptr<c10d::Work>;

  WorkPointer broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPointer allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPointer allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  WorkPointer allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPointer reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPointer allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  WorkPointer _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
  WorkPointer allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                  const c10d::AllgatherOptions& options) override;
  WorkPointer allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const c10d::AllgatherOptions& options) override;
  WorkPointer reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                             const c10d::ReduceScatterOptions& options) override;
  WorkPointer _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                   const c10d::ReduceScatterOptions& options) override;
  WorkPointer reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const c10d::ReduceScatterOptions& options) override;
  WorkPointer gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  WorkPointer scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) override;
  WorkPointer alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_sizes,
                            std::vector<std::int64_t>& input_sizes, const c10d::AllToAllOptions& options) override;
  WorkPointer alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  WorkPointer send(Tensors& tensors, int destination, int tag) override;
  WorkPointer recv(Tensors& tensors, int source, int tag) override;
  WorkPointer recvAnysource(Tensors& tensors, int tag) override;
  WorkPointer barrier(const c10d::BarrierOptions& options) override;
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;

  // The mean over the ranks of `values` (float32, one dimension, in place), which are several arrays, one after the
  // other, of these counts. Each is rounded to the wire format on both ways; with feedback, `residuals` and
  // `sum_residuals` have an array for each, else they are empty.
  WorkPointer compressed_all_reduce(const at::Tensor& values, const std::vector<std::int64_t>& counts, WireFormat wire,
                                    const Tensors& residuals, const Tensors& sum_residuals);

 private:
  // What one collective of torch becomes: operations of the exchange and what is left to do after them.
  struct Begun {
    std::vector<Work> works;
    std::function<void()> after;
  };
  // What torch says of any collective.
  struct Call {
    std::chrono::milliseconds timeout;
    bool async;  // the caller does something else before it waits
  };
  template <typename Options>
  static Call call_of(const Options& options) {
    return {options.timeout, options.asyncOp};
  }
  // Begins them in the order of the calls and hands out torch's Work. `begin` is called with the exchange to itself.
  WorkPointer start(WorkDescription description, Call call, const std::function<Begun(Exchange&)>& begin);
  // One that a rank alone has done already, but for what is left to do.
  WorkPointer start_alone(WorkDescription description, Call call, const std::function<void()>& after) {
    return start(std::move(description), call, [&](Exchange&) { return Begun{{}, after}; });
  }
  WorkPointer start_barrier(const char* title, const char* label, const c10d::BarrierOptions& options);
  // A collective that the inner group does; `label` is what the ranks compare.
  WorkPointer start_inner(WorkDescription description, const std::string& label, InnerGroup::Begin begin,
                          std::function<void()> after);
  WorkPointer start_transfer(WorkDescription description, const std::string& label, const InnerGroup::Begin& begin,
                             std::function<void()> after);
  WorkDescription describe(c10d::OpType kind, const char* title, const Tensors& inputs,
                           std::vector<Tensors> outputs) const;
  WorkPointer all_reduce_tensors(const char* operation, c10d::OpType kind, Tensors& tensors,
                                 const c10d::AllreduceOptions& options);
  Begun begin_all_reduce(Exchange& exchange, const std::vector<Output>& outputs, const c10d::ReduceOp& op,
                         const char* operation);
  std::chrono::milliseconds time_limit(std::chrono::milliseconds of_operation) const;
  // Throws DistBackendError after shutdown().
  Exchange& exchange();
  InnerGroup& inner();

  const BackendSettings settings_;
  const pid_t process_ = getpid();
  std::atomic<std::int64_t> timeout_;  // milliseconds
  const std::unique_ptr<Trace> trace_;
  std::shared_ptr<std::atomic<std::uint64_t>> overflows_ = std::make_shared<std::atomic<std::uint64_t>>(0);
  std::atomic<std::uint64_t> sequence_{0};
  std::mutex begin_mutex_;  // one thread at a time begins operations

  // Gone after shutdown(); in this order, what is below uses what is above.
  std::optional<Exchange> exchange_;
  std::optional<ArenaTensors> arena_;
  Choice choice_;
  std::shared_ptr<Completer> completer_;
  std::unique_ptr<InnerGroup> inner_;
};

}  // namespace sumpter
