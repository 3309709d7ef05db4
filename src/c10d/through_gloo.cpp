// The collectives, and the sends and receives, that the inner Gloo group does.
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include "c10d/arguments.h"
#include "c10d/backend.h"

namespace sumpter {

using Content = Output::Content;

SumpterBackend::WorkPointer SumpterBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                                   const c10d::GatherOptions& options) {
  const NoAutograd guard;
  const at::Tensor& input = the_one("gather", inputs);
  check_root("gather", options.rootRank, size_);
  const bool root = options.rootRank == rank_;
  TORCH_CHECK_VALUE(
      outputs.size() == (root ? 1 : 0), "sumpter: gather: ",
      root ? "the destination needs one list of outputs" : "only the destination gives a list of outputs");
  if (root) check_list("gather", outputs.front(), input, size_);
  const auto written = root ? outputs_of("gather", outputs.front(), Content::ignored) : std::vector<Output>();
  auto description = describe(c10d::OpType::GATHER, "sumpter:gather", inputs, outputs);
  Tensors flat_input{dense(input)};
  if (size_ == 1) {
    written.front().flat().copy_(flat_input.front());
    return start_alone(std::move(description), call_of(options), [written] { deliver_all(written); });
  }
  const auto label =
      fmt::format("gather of {} {} to rank {}", input.numel(), c10::toString(input.scalar_type()), options.rootRank);
  std::vector<Tensors> flat_outputs = root ? std::vector<Tensors>{flats(written)} : std::vector<Tensors>();
  return start_inner(
      std::move(description), label,
      [flat_outputs, flat_input, options](c10d::Backend& gloo) mutable {
        return gloo.gather(flat_outputs, flat_input, options);
      },
      [written] { deliver_all(written); });
}

SumpterBackend::WorkPointer SumpterBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                                    const c10d::ScatterOptions& options) {
  const NoAutograd guard;
  const at::Tensor& output = the_one("scatter", outputs);
  check_root("scatter", options.rootRank, size_);
  const bool root = options.rootRank == rank_;
  TORCH_CHECK_VALUE(inputs.size() == (root ? 1 : 0), "sumpter: scatter: ",
                    root ? "the source needs one list of inputs" : "only the source gives a list of inputs");
  if (root) check_list("scatter", inputs.front(), output, size_);
  const auto written = outputs_of("scatter", outputs, Content::ignored);
  std::vector<Tensors> flat_inputs;
  for (const Tensors& list : inputs) flat_inputs.push_back(dense_ones(list));
  auto description = describe(c10d::OpType::SCATTER, "sumpter:scatter", root ? inputs.front() : Tensors(), {outputs});
  if (size_ == 1) {
    written.front().flat().copy_(flat_inputs.front().front());
    return start_alone(std::move(description), call_of(options), [written] { deliver_all(written); });
  }
  const auto label = fmt::format("scatter of {} {} from rank {}", output.numel(), c10::toString(output.scalar_type()),
                                 options.rootRank);
  return start_inner(
      std::move(description), label,
      [flat_outputs = flats(written), flat_inputs, options](c10d::Backend& gloo) mutable {
        return gloo.scatter(flat_outputs, flat_inputs, options);
      },
      [written] { deliver_all(written); });
}

SumpterBackend::WorkPointer SumpterBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                          std::vector<std::int64_t>& output_sizes,
                                                          std::vector<std::int64_t>& input_sizes,
                                                          const c10d::AllToAllOptions& options) {
  const NoAutograd guard;
  constexpr const char* kOperation = "all_to_all_single";
  check_tensor(kOperation, input);
  check_same_type(kOperation, input, output);
  for (const auto* sizes : {&input_sizes, &output_sizes}) {
    for (const std::int64_t size : *sizes) {
      TORCH_CHECK_VALUE(size >= 0, "sumpter: ", kOperation, ": a split of ", size, " rows");
    }
  }
  c10d::checkSplitSizes(input_sizes, input, size_);
  c10d::checkSplitSizes(output_sizes, output, size_);
  const std::vector<Output> written = outputs_of(kOperation, {output}, Content::ignored);
  auto description = describe(c10d::OpType::ALLTOALL_BASE, "sumpter:all_to_all", {input}, {{output}});
  at::Tensor flat_input = dense(input), flat_output = written.front().flat();
  if (size_ == 1) {
    flat_output.copy_(flat_input.view(flat_output.sizes()));
    return start_alone(std::move(description), call_of(options), [written] { deliver_all(written); });
  }
  // Splits differ between ranks by right.
  const auto label = fmt::format("{} of {}", kOperation, c10::toString(input.scalar_type()));
  return start_inner(
      std::move(description), label,
      [flat_output, flat_input, output_sizes, input_sizes, options](c10d::Backend& gloo) mutable {
        return gloo.alltoall_base(flat_output, flat_input, output_sizes, input_sizes, options);
      },
      [written] { deliver_all(written); });
}

// Lists of tensors that may differ in size, as one flat tensor each way: Gloo knows all_to_all in that form only.
SumpterBackend::WorkPointer SumpterBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                                     const c10d::AllToAllOptions& options) {
  const NoAutograd guard;
  constexpr const char* kOperation = "all_to_all";
  const auto flatten = [&](const Tensors& list, std::vector<std::int64_t>& sizes) {
    TORCH_CHECK_VALUE(list.size() == static_cast<std::size_t>(size_), "sumpter: ", kOperation, ": a list of ",
                      list.size(), " tensors; the group has ", size_, " ranks");
    std::int64_t all = 0;
    for (const at::Tensor& tensor : list) {
      check_tensor(kOperation, tensor);
      check_same_type(kOperation, tensor, list.front());
      sizes.push_back(tensor.numel());
      all += tensor.numel();
    }
    return at::empty({all}, list.front().options().memory_format(at::MemoryFormat::Contiguous));
  };
  std::vector<std::int64_t> input_sizes, output_sizes;
  at::Tensor input = flatten(inputs, input_sizes);
  at::Tensor output = flatten(outputs, output_sizes);
  check_same_type(kOperation, input, output);
  std::int64_t begin = 0;
  for (const at::Tensor& tensor : inputs) {
    input.narrow(0, begin, tensor.numel()).copy_(dense(tensor).view({-1}));
    begin += tensor.numel();
  }
  const auto written = outputs_of(kOperation, outputs, Content::ignored);
  const auto after = [written, output] {
    const NoAutograd below;
    std::int64_t from = 0;
    for (const Output& one : written) {
      one.flat().view({-1}).copy_(output.narrow(0, from, one.flat().numel()));
      one.deliver();
      from += one.flat().numel();
    }
  };
  auto description = describe(c10d::OpType::ALLTOALL, "sumpter:all_to_all", inputs, {outputs});
  if (size_ == 1) {
    output.copy_(input);
    return start_alone(std::move(description), call_of(options), after);
  }
  const auto label = fmt::format("{} of {}", kOperation, c10::toString(input.scalar_type()));
  return start_inner(
      std::move(description), label,
      [output, input, output_sizes, input_sizes, options](c10d::Backend& gloo) mutable {
        return gloo.alltoall_base(output, input, output_sizes, input_sizes, options);
      },
      after);
}

SumpterBackend::WorkPointer SumpterBackend::send(Tensors& tensors, int destination, int tag) {
  const NoAutograd guard;
  const at::Tensor& tensor = the_one("send", tensors);
  check_root("send", destination, size_);
  TORCH_CHECK_VALUE(destination != rank_, "sumpter: send: rank ", rank_, " to itself");
  Tensors flat{dense(tensor)};
  return start_transfer(
      describe(c10d::OpType::SEND, "sumpter:send", tensors, {}), fmt::format("send to rank {}", destination),
      [flat, destination, tag](c10d::Backend& gloo) mutable { return gloo.send(flat, destination, tag); }, nullptr);
}

SumpterBackend::WorkPointer SumpterBackend::recv(Tensors& tensors, int source, int tag) {
  const NoAutograd guard;
  const at::Tensor& tensor = the_one("recv", tensors);
  check_root("recv", source, size_);
  TORCH_CHECK_VALUE(source != rank_, "sumpter: recv: rank ", rank_, " from itself");
  const auto written = outputs_of("recv", {tensor}, Content::ignored);
  return start_transfer(
      describe(c10d::OpType::RECV, "sumpter:recv", {}, {tensors}), fmt::format("recv from rank {}", source),
      [flat = flats(written), source, tag](c10d::Backend& gloo) mutable { return gloo.recv(flat, source, tag); },
      [written] { deliver_all(written); });
}

SumpterBackend::WorkPointer SumpterBackend::recvAnysource(Tensors& tensors, int tag) {
  const NoAutograd guard;
  const at::Tensor& tensor = the_one("recv", tensors);
  TORCH_CHECK_VALUE(size_ > 1, "sumpter: recv in a group of one rank");
  const auto written = outputs_of("recv", {tensor}, Content::ignored);
  return start_transfer(
      describe(c10d::OpType::RECVANYSOURCE, "sumpter:recv", {}, {tensors}), "recv from any rank",
      [flat = flats(written), tag](c10d::Backend& gloo) mutable { return gloo.recvAnysource(flat, tag); },
      [written] { deliver_all(written); });
}

}  // namespace sumpter
