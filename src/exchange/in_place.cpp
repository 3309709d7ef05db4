// Operations done in place: pieces of memory that every member can read and write where it lies.
#include <algorithm>
#include <cstring>

#include "exchange/reduction.h"
#include "exchange/transfer.h"

namespace sumpter::exchange {
namespace {

constexpr std::size_t kBlock = 4096;  // floats that are handed to a consumer at a time: they stay in the first cache

// Sums block by block and hands each block on while it is in cache.
std::size_t consume_run(const Operation& operation, std::size_t part, std::size_t begin, std::size_t size) {
  alignas(kLine) float block[kBlock];
  Summing summing(operation.request, operation.terms);
  std::size_t bytes = 0;
  for (std::size_t done = 0; done < size; done += kBlock) {
    const std::size_t count = std::min(kBlock, size - done);
    for (std::size_t i = 0; i < operation.terms.size; ++i) {
      summing.input(address(operation.reach.inputs[operation.terms.ranks[i]][part], begin + done, sizeof(float)));
    }
    summing.output(block);
    bytes += summing.run(count);
    operation.request.consumer->consume(part, begin + done, {block, count});
  }
  return bytes;
}

std::size_t all_reduce_piece(const Operation& operation, Range range) {
  const Request& request = operation.request;
  const std::size_t element = request.element();
  Summing summing(request, operation.terms);
  std::size_t bytes = 0;
  for_each_run(request.inputs, range, [&](std::size_t part, std::size_t begin, std::size_t size, std::size_t) {
    if (request.consumer != nullptr) {
      bytes += consume_run(operation, part, begin, size);
      return;
    }
    for (std::size_t i = 0; i < operation.terms.size; ++i) {
      summing.input(address(operation.reach.inputs[operation.terms.ranks[i]][part], begin, element));
    }
    for (const auto& parts : operation.reach.outputs) summing.output(address(parts[part], begin, element));
    bytes += summing.run(size);
  });
  return bytes;
}

std::size_t reduce_scatter_piece(const Operation& operation, int owner, Range range) {
  const std::size_t element = operation.request.element();
  Summing summing(operation.request, operation.terms);
  for (std::size_t i = 0; i < operation.terms.size; ++i) {
    const Part& input = operation.reach.inputs[operation.terms.ranks[i]][0];
    summing.input(address(input, owner * operation.request.count + range.begin, element));
  }
  summing.output(address(operation.reach.outputs[owner][0], range.begin, element));
  return summing.run(range.size());
}

// A member's own block may already be where it belongs.
std::size_t copy_block(const std::byte* from, std::byte* to, std::size_t bytes) {
  if (from == to || bytes == 0) return 0;
  std::memmove(to, from, bytes);
  return bytes;
}

std::size_t all_gather_piece(const Operation& operation, int owner, Range range) {
  const std::size_t element = operation.request.element(), count = operation.request.count;
  std::size_t bytes = 0;
  for (std::size_t begin = range.begin; begin < range.end;) {
    const std::size_t rank = begin / count, end = std::min(range.end, (rank + 1) * count);
    bytes += copy_block(address(operation.reach.inputs[rank][0], begin - rank * count, element),
                        address(operation.reach.outputs[owner][0], begin, element), (end - begin) * element);
    begin = end;
  }
  return bytes;
}

}  // namespace

std::size_t do_in_place(const Operation& operation, int owner, std::size_t index) {
  const Request& request = operation.request;
  const Range range = operation.in_place.range(owner, index);
  switch (request.kind) {
    case Kind::all_reduce:
      return all_reduce_piece(operation, range);
    case Kind::reduce_scatter:
      return reduce_scatter_piece(operation, owner, range);
    case Kind::all_gather:
      return all_gather_piece(operation, owner, range);
    case Kind::broadcast:
      return copy_block(address(operation.reach.inputs[request.root][0], range.begin, request.element()),
                        address(operation.reach.outputs[owner][0], range.begin, request.element()),
                        range.size() * request.element());
    case Kind::barrier:
      break;
  }
  return 0;
}

}  // namespace sumpter::exchange
