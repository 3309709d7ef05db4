// The collectives that the exchange does: which of its operations each becomes. through_gloo.cpp has the others.
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include "c10d/arguments.h"
#include "c10d/backend.h"
#include "c10d/types.h"

namespace sumpter {
namespace {

using Content = Output::Content;

// The numbers that arithmetic() speaks of.
Part part_of(const at::Tensor& flat) {
  return {flat.data_ptr(), static_cast<std::size_t>(flat.numel()) * (flat.is_complex() ? 2 : 1)};
}

// Copies a flat tensor of as many blocks as the list has tensors to them, or from them.
void scatter_to(const at::Tensor& flat, const std::vector<Output>& list) {
  const auto blocks = flat.view({static_cast<std::int64_t>(list.size()), -1});
  for (std::size_t i = 0; i < list.size(); ++i) {
    list[i].flat().view({-1}).copy_(blocks[static_cast<std::int64_t>(i)]);
    list[i].deliver();
  }
}

at::Tensor gathered(const Tensors& list) {
  const at::Tensor& first = list.front();
  at::Tensor flat = at::empty({static_cast<std::int64_t>(list.size()), first.numel()},
                              first.options().memory_format(at::MemoryFormat::Contiguous));
  for (std::size_t i = 0; i < list.size(); ++i) {
    flat[static_cast<std::int64_t>(i)].copy_(dense(list[i]).view({-1}));
  }
  return flat;
}

}  // namespace

// --- reductions ---

SumpterBackend::Begun SumpterBackend::begin_all_reduce(Exchange& exchange, const std::vector<Output>& outputs,
                                                       const c10d::ReduceOp& op, const char* operation) {
  const auto [type, reduction] = arithmetic(operation, op, outputs.front().flat().scalar_type());
  Begun begun;
  const WireFormat wire = settings_.options->wire;
  const bool sum = reduction == Reduction::sum || reduction == Reduction::average;
  if (wire != WireFormat::f32 && type == ElementType::f32 && sum) {
    std::vector<WirePart> parts;
    for (const Output& output : outputs) {
      parts.push_back({output.flat().data_ptr<float>(), static_cast<std::size_t>(output.flat().numel())});
    }
    auto [work, receive] = begin_in_wire(exchange, *arena_, std::move(parts), wire, reduction, overflows_);
    begun.works.push_back(std::move(work));
    begun.after = [outputs, receive = std::move(receive)] {
      receive();
      deliver_all(outputs);
    };
    return begun;
  }
  std::vector<Part> parts;
  for (const Output& output : outputs) parts.push_back(part_of(output.flat()));
  begun.works.push_back(exchange.begin_all_reduce(parts, {.type = type, .reduction = reduction}));
  begun.after = [outputs] { deliver_all(outputs); };
  return begun;
}

SumpterBackend::WorkPointer SumpterBackend::all_reduce_tensors(const char* operation, c10d::OpType kind,
                                                               Tensors& tensors,
                                                               const c10d::AllreduceOptions& options) {
  const NoAutograd guard;
  for (const at::Tensor& tensor : tensors) check_same_type(operation, tensor, tensors.front());
  const auto outputs = outputs_of(operation, tensors, Content::kept);
  return start(describe(kind, "sumpter:all_reduce", tensors, {tensors}), call_of(options),
               [&](Exchange& exchange) { return begin_all_reduce(exchange, outputs, options.reduceOp, operation); });
}

SumpterBackend::WorkPointer SumpterBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  if (tensors.size() == 1 && tensors.front().defined() && tensors.front().layout() == at::kSparse) {
    return allreduce_sparse(tensors, options);
  }
  the_one("all_reduce", tensors);
  return all_reduce_tensors("all_reduce", c10d::OpType::ALLREDUCE, tensors, options);
}

SumpterBackend::WorkPointer SumpterBackend::allreduce_coalesced(Tensors& tensors,
                                                                const c10d::AllreduceCoalescedOptions& options) {
  TORCH_CHECK_VALUE(!tensors.empty(), "sumpter: all_reduce_coalesced of no tensors");
  for (const at::Tensor& tensor : tensors) check_tensor("all_reduce_coalesced", tensor);
  return all_reduce_tensors("all_reduce_coalesced", c10d::OpType::ALLREDUCE_COALESCED, tensors, options);
}

SumpterBackend::WorkPointer SumpterBackend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) {
  const at::Tensor& tensor = tensors.at(0);
  TORCH_CHECK_VALUE(size_ > 1, "sumpter: all_reduce of a sparse tensor in a group of one rank");
  const auto label = fmt::format("sparse all_reduce of {}, {}", c10::toString(tensor.scalar_type()),
                                 sumpter::name_of(options.reduceOp));
  return start_inner(
      describe(c10d::OpType::_ALLREDUCE_SPARSE, "sumpter:all_reduce", tensors, {tensors}), label,
      [tensors, options](c10d::Backend& gloo) mutable { return gloo.allreduce(tensors, options); }, nullptr);
}

SumpterBackend::WorkPointer SumpterBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const NoAutograd guard;
  const at::Tensor& tensor = the_one("reduce", tensors);
  check_root("reduce", options.rootRank, size_);
  // The others' tensors stay as they are.
  const at::Tensor summed = options.rootRank == rank_ ? tensor : tensor.clone(at::MemoryFormat::Contiguous);
  const auto outputs = outputs_of("reduce", {summed}, Content::kept);
  return start(describe(c10d::OpType::REDUCE, "sumpter:reduce", tensors, {tensors}), call_of(options),
               [&](Exchange& exchange) { return begin_all_reduce(exchange, outputs, options.reduceOp, "reduce"); });
}

SumpterBackend::WorkPointer SumpterBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                                           const c10d::ReduceScatterOptions& options) {
  const NoAutograd guard;
  const at::Tensor& output = the_one("reduce_scatter", outputs);
  TORCH_CHECK_VALUE(inputs.size() == 1, "sumpter: reduce_scatter takes one list of inputs, not ", inputs.size());
  check_list("reduce_scatter", inputs.front(), output, size_);
  at::Tensor whole = gathered(inputs.front());
  at::Tensor result = output;
  return _reduce_scatter_base(result, whole, options);
}

SumpterBackend::WorkPointer SumpterBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                                 const c10d::ReduceScatterOptions& options) {
  Tensors outputs{output}, inputs{input};
  return reduce_scatter_tensor_coalesced(outputs, inputs, options);
}

SumpterBackend::WorkPointer SumpterBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                            const c10d::ReduceScatterOptions& options) {
  const NoAutograd guard;
  constexpr const char* kOperation = "reduce_scatter_tensor";
  check_blocks(kOperation, inputs, outputs, size_);
  const Tensors flat_inputs = dense_ones(inputs);
  const auto written = outputs_of(kOperation, outputs, Content::ignored);
  return start(describe(c10d::OpType::_REDUCE_SCATTER_BASE, "sumpter:reduce_scatter", inputs, {outputs}),
               call_of(options), [&](Exchange& exchange) {
                 Begun begun;
                 for (std::size_t i = 0; i < written.size(); ++i) {
                   const auto [type, reduction] =
                       arithmetic(kOperation, options.reduceOp, flat_inputs[i].scalar_type());
                   begun.works.push_back(exchange.begin_reduce_scatter(
                       part_of(flat_inputs[i]), part_of(written[i].flat()), {.type = type, .reduction = reduction}));
                 }
                 begun.after = [flat_inputs, written] { deliver_all(written); };
                 return begun;
               });
}

// --- copies that the exchange makes ---

SumpterBackend::WorkPointer SumpterBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  const NoAutograd guard;
  const at::Tensor& tensor = the_one("broadcast", tensors);
  check_root("broadcast", options.rootRank, size_);
  const bool root = options.rootRank == rank_;
  const auto outputs = root ? std::vector<Output>() : outputs_of("broadcast", {tensor}, Content::ignored);
  const at::Tensor flat = root ? dense(tensor) : outputs.front().flat();
  return start(describe(c10d::OpType::BROADCAST, "sumpter:broadcast", tensors, {tensors}), call_of(options),
               [&](Exchange& exchange) {
                 const auto [part, type] = bytes_of(flat);
                 Begun begun;
                 begun.works.push_back(exchange.begin_broadcast(part, type, static_cast<int>(options.rootRank)));
                 begun.after = [flat, outputs] { deliver_all(outputs); };
                 return begun;
               });
}

SumpterBackend::WorkPointer SumpterBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                                      const c10d::AllgatherOptions& options) {
  const at::Tensor& input = the_one("all_gather", inputs);
  TORCH_CHECK_VALUE(outputs.size() == 1, "sumpter: all_gather takes one list of outputs, not ", outputs.size());
  std::vector<Tensors> lists;
  check_list("all_gather", outputs.front(), input, size_);
  for (const at::Tensor& output : outputs.front()) lists.push_back({output});
  return allgather_coalesced(lists, inputs, options);
}

SumpterBackend::WorkPointer SumpterBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                            const c10d::AllgatherOptions& options) {
  Tensors outputs{output}, inputs{input};
  return allgather_into_tensor_coalesced(outputs, inputs, options);
}

SumpterBackend::WorkPointer SumpterBackend::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                                                const c10d::AllgatherOptions& options) {
  const NoAutograd guard;
  constexpr const char* kOperation = "all_gather";
  TORCH_CHECK_VALUE(outputs.size() == static_cast<std::size_t>(size_), "sumpter: ", kOperation, ": lists for ",
                    outputs.size(), " ranks; the group has ", size_);
  struct Gathered {
    at::Tensor input, whole;
    std::vector<Output> outputs;  // by rank
  };
  auto all = std::make_shared<std::vector<Gathered>>();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check_tensor(kOperation, inputs[i]);
    Tensors list;
    for (const Tensors& of_rank : outputs) {
      TORCH_CHECK_VALUE(of_rank.size() == inputs.size(), "sumpter: ", kOperation, ": ", inputs.size(), " inputs and ",
                        of_rank.size(), " outputs for a rank");
      list.push_back(of_rank[i]);
    }
    check_list(kOperation, list, inputs[i], size_);
    at::Tensor whole =
        at::empty({size_, inputs[i].numel()}, inputs[i].options().memory_format(at::MemoryFormat::Contiguous));
    all->push_back({dense(inputs[i]), std::move(whole), outputs_of(kOperation, list, Content::ignored)});
  }
  // As torch's own backends say it: one list for each input.
  std::vector<Tensors> results(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    for (const Tensors& of_rank : outputs) results[i].push_back(of_rank[i]);
  }
  return start(describe(c10d::OpType::ALLGATHER, "sumpter:all_gather", inputs, std::move(results)), call_of(options),
               [&](Exchange& exchange) {
                 Begun begun;
                 for (const Gathered& one : *all) {
                   const auto [part, type] = bytes_of(one.input);
                   begun.works.push_back(exchange.begin_all_gather(part, bytes_of(one.whole).part, type));
                 }
                 begun.after = [all] {
                   const NoAutograd below;
                   for (const Gathered& one : *all) scatter_to(one.whole, one.outputs);
                 };
                 return begun;
               });
}

SumpterBackend::WorkPointer SumpterBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                            const c10d::AllgatherOptions& options) {
  const NoAutograd guard;
  constexpr const char* kOperation = "all_gather_into_tensor";
  check_blocks(kOperation, outputs, inputs, size_);
  const Tensors flat_inputs = dense_ones(inputs);
  const auto written = outputs_of(kOperation, outputs, Content::ignored);
  return start(describe(c10d::OpType::_ALLGATHER_BASE, "sumpter:all_gather", inputs, {outputs}), call_of(options),
               [&](Exchange& exchange) {
                 Begun begun;
                 for (std::size_t i = 0; i < written.size(); ++i) {
                   const auto [part, type] = bytes_of(flat_inputs[i]);
                   begun.works.push_back(exchange.begin_all_gather(part, bytes_of(written[i].flat()).part, type));
                 }
                 begun.after = [flat_inputs, written] { deliver_all(written); };
                 return begun;
               });
}

// --- barriers ---

SumpterBackend::WorkPointer SumpterBackend::barrier(const c10d::BarrierOptions& options) {
  return start_barrier("sumpter:barrier", "barrier", options);
}

SumpterBackend::WorkPointer SumpterBackend::start_barrier(const char* title, const char* label,
                                                          const c10d::BarrierOptions& options) {
  return start(describe(c10d::OpType::BARRIER, title, {}, {}), call_of(options), [&](Exchange& exchange) {
    Begun begun;
    begun.works.push_back(exchange.begin_barrier(label));
    return begun;
  });
}

void SumpterBackend::monitoredBarrier(const c10d::BarrierOptions& options, bool /*wait_all_ranks*/) {
  // The error names all ranks that are missing, whether one was asked for or all.
  start_barrier("sumpter:monitored_barrier", "monitored_barrier", options)->wait();
}

// --- our own ---

SumpterBackend::WorkPointer SumpterBackend::compressed_all_reduce(const at::Tensor& values,
                                                                  const std::vector<std::int64_t>& counts,
                                                                  WireFormat wire, const Tensors& residuals,
                                                                  const Tensors& sum_residuals) {
  constexpr const char* kOperation = "compressed_all_reduce";
  check_tensor(kOperation, values);
  const auto is_flat_f32 = [](const at::Tensor& tensor) {
    return tensor.scalar_type() == at::kFloat && tensor.is_contiguous();
  };
  TORCH_CHECK_VALUE(is_flat_f32(values), "sumpter: ", kOperation, ": contiguous float32 values are needed, not ",
                    values.scalar_type());
  const auto check_residuals = [&](const Tensors& list) {
    TORCH_CHECK_VALUE(list.empty() || list.size() == counts.size(), "sumpter: ", kOperation, ": ", list.size(),
                      " residuals for ", counts.size(), " arrays");
    for (std::size_t i = 0; i < list.size(); ++i) {
      TORCH_CHECK_VALUE(is_flat_f32(list[i]) && list[i].numel() == counts[i], "sumpter: ", kOperation, ": residual ", i,
                        " is of ", list[i].numel(), " ", list[i].scalar_type(), ", its array of ", counts[i], " Float");
    }
  };
  check_residuals(residuals);
  check_residuals(sum_residuals);
  std::vector<WirePart> parts;
  float* at = values.data_ptr<float>();
  std::int64_t all = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    TORCH_CHECK_VALUE(counts[i] >= 0, "sumpter: ", kOperation, ": an array of ", counts[i], " values");
    parts.push_back({at, static_cast<std::size_t>(counts[i]),
                     residuals.empty() ? nullptr : residuals[i].data_ptr<float>(),
                     sum_residuals.empty() ? nullptr : sum_residuals[i].data_ptr<float>()});
    at += counts[i];
    all += counts[i];
  }
  TORCH_CHECK_VALUE(all == values.numel(), "sumpter: ", kOperation, ": arrays of ", all, " values in all, given ",
                    values.numel());
  return start(describe(c10d::OpType::ALLREDUCE, "sumpter:compressed_all_reduce", {values}, {{values}}),
               Call{c10d::kUnsetTimeout, true}, [&](Exchange& exchange) {
                 Begun begun;
                 if (wire == WireFormat::f32) {
                   const Part part = part_of(values);
                   begun.works.push_back(exchange.begin_all_reduce({&part, 1}, {.reduction = Reduction::average}));
                   begun.after = [values] {};
                   return begun;
                 }
                 auto [work, receive] =
                     begin_in_wire(exchange, *arena_, std::move(parts), wire, Reduction::average, overflows_);
                 begun.works.push_back(std::move(work));
                 begun.after = [values, residuals, sum_residuals, receive = std::move(receive)] { receive(); };
                 return begun;
               });
}

}  // namespace sumpter
