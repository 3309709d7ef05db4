// Small operations: each member makes its own result from everybody's input.
#include <cstring>

#include "exchange/reduction.h"
#include "exchange/transfer.h"

namespace sumpter::exchange {

std::size_t copy_from_parts(std::span<const Part> parts, Range range, std::size_t element, std::byte* to) {
  std::size_t copied = 0;
  for_each_run(parts, range, [&](std::size_t part, std::size_t begin, std::size_t size, std::size_t offset) {
    if (parts[part].data == nullptr) return;
    std::memcpy(to + offset * element, address(parts[part], begin, element), size * element);
    copied += size * element;
  });
  return copied;
}

std::size_t copy_to_parts(const std::byte* from, std::span<const Part> parts, Range range, std::size_t element) {
  std::size_t copied = 0;
  for_each_run(parts, range, [&](std::size_t part, std::size_t begin, std::size_t size, std::size_t offset) {
    if (parts[part].data == nullptr) return;
    std::memcpy(address(parts[part], begin, element), from + offset * element, size * element);
    copied += size * element;
  });
  return copied;
}

std::size_t finish_small(const Control& control, const Operation& operation, int rank) {
  const Request& request = operation.request;
  const std::size_t element = request.element();
  std::size_t bytes = 0;
  if (request.reduces()) {
    // A reduce_scatter's slots hold whole inputs, of which this member wants its block.
    const std::size_t first = request.kind == Kind::reduce_scatter ? rank * request.count : 0;
    Summing summing(request, operation.terms);
    for_each_run(
        request.outputs, {0, request.count},
        [&](std::size_t part, std::size_t begin, std::size_t size, std::size_t offset) {
          for (std::size_t i = 0; i < operation.terms.size; ++i) {
            summing.input(control.small_slot(operation.number, operation.terms.ranks[i]) + (first + offset) * element);
          }
          summing.output(address(request.outputs[part], begin, element));
          bytes += summing.run(size);
        });
  } else if (request.kind == Kind::all_gather) {
    for (int from = 0; from < control.members(); ++from) {
      bytes += copy_to_parts(control.small_slot(operation.number, from), request.outputs,
                             {from * request.count, (from + 1) * request.count}, element);
    }
  } else if (request.kind == Kind::broadcast && rank != request.root) {
    bytes +=
        copy_to_parts(control.small_slot(operation.number, request.root), request.outputs, {0, request.count}, element);
  }
  return bytes;
}

std::size_t finish_alone(const Operation& operation) {
  const Request& request = operation.request;
  const std::size_t element = request.element(), bytes = request.count * element;
  if (request.consumer != nullptr || (request.reduces() && operation.terms.size == 0)) {
    std::size_t read = 0;
    for (std::size_t index = 0; index < operation.in_place.share(0); ++index) read += do_in_place(operation, 0, index);
    return read;
  }
  if (request.kind != Kind::all_gather && request.kind != Kind::reduce_scatter) return 0;
  if (bytes > 0) std::memmove(request.outputs[0].data, request.inputs[0].data, bytes);
  return bytes;
}

}  // namespace sumpter::exchange
