// Operations that travel through slots, round by round. A sum over several machines would stand in sum_round, between
// the summing and the writing back: that is why the three steps are apart.
#include <cstring>

#include "exchange/reduction.h"
#include "exchange/transfer.h"

namespace sumpter::exchange {
namespace {

// The slot, in the row of `owner`, of what `for_rank` sums.
std::byte* slot(const Control& control, const Operation& operation, std::uint64_t round, int owner, int for_rank) {
  return control.staging_slots(operation.first_round + round, owner) + for_rank * control.piece();
}

// A block of a reduce_scatter's input, or of an all_gather's output, counted through the whole.
Range in_block(const Request& request, int block, Range range) {
  return {block * request.count + range.begin, block * request.count + range.end};
}

std::size_t sum_all_reduce(const Control& control, const Operation& operation, int rank, std::uint64_t round) {
  const Request& request = operation.request;
  const std::size_t element = request.element();
  Summing summing(request, operation.terms);
  std::size_t bytes = 0;
  for_each_run(request.inputs, operation.staged.piece_of(round, rank),
               [&](std::size_t part, std::size_t begin, std::size_t size, std::size_t offset) {
                 std::byte* const own = address(request.inputs[part], begin, element);
                 const auto staged = [&](int owner) {
                   return owner == rank ? own : slot(control, operation, round, owner, rank) + offset * element;
                 };
                 for (std::size_t i = 0; i < operation.terms.size; ++i) summing.input(staged(operation.terms.ranks[i]));
                 for (int owner = 0; owner < control.members(); ++owner) summing.output(staged(owner));
                 bytes += summing.run(size);
               });
  return bytes;
}

std::size_t sum_reduce_scatter(const Control& control, const Operation& operation, int rank, std::uint64_t round) {
  const Request& request = operation.request;
  const Range range = operation.staged.piece(round);
  Summing summing(request, operation.terms);
  for (std::size_t i = 0; i < operation.terms.size; ++i) {
    const int from = operation.terms.ranks[i];
    summing.input(from == rank ? address(request.inputs[0], in_block(request, rank, range).begin, request.element())
                               : slot(control, operation, round, from, rank));
  }
  summing.output(address(request.outputs[0], range.begin, request.element()));
  return summing.run(range.size());
}

}  // namespace

std::size_t copy_in(const Control& control, const Operation& operation, int rank, std::uint64_t round) {
  const Request& request = operation.request;
  const std::size_t element = request.element();
  std::size_t bytes = 0;
  if (request.reduces() && takes_part(request)) {
    for (int other = 0; other < control.members(); ++other) {
      if (other == rank) continue;
      const Range range = request.kind == Kind::all_reduce ? operation.staged.piece_of(round, other)
                                                           : in_block(request, other, operation.staged.piece(round));
      bytes += copy_from_parts(request.inputs, range, element, slot(control, operation, round, rank, other));
    }
  } else if (request.kind == Kind::all_gather || (request.kind == Kind::broadcast && rank == request.root)) {
    bytes += copy_from_parts(request.inputs, operation.staged.piece(round), element,
                             slot(control, operation, round, rank, 0));
  }
  return bytes;
}

std::size_t sum_round(const Control& control, const Operation& operation, int rank, std::uint64_t round) {
  if (operation.request.kind == Kind::all_reduce) return sum_all_reduce(control, operation, rank, round);
  if (operation.request.kind == Kind::reduce_scatter) return sum_reduce_scatter(control, operation, rank, round);
  return 0;
}

std::size_t copy_out(const Control& control, const Operation& operation, int rank, std::uint64_t round) {
  const Request& request = operation.request;
  const std::size_t element = request.element();
  std::size_t bytes = 0;
  if (request.kind == Kind::all_reduce) {
    for (int other = 0; other < control.members(); ++other) {
      if (other == rank) continue;
      bytes += copy_to_parts(slot(control, operation, round, rank, other), request.outputs,
                             operation.staged.piece_of(round, other), element);
    }
  } else if (request.kind == Kind::all_gather) {
    const Range range = operation.staged.piece(round);
    for (int from = 0; from < control.members(); ++from) {
      if (from == rank) {
        std::byte* const own = address(request.outputs[0], in_block(request, rank, range).begin, element);
        const std::byte* const input = address(request.inputs[0], range.begin, element);
        if (own != input && range.size() > 0) std::memmove(own, input, range.size() * element);
        continue;
      }
      bytes += copy_to_parts(slot(control, operation, round, from, 0), request.outputs, in_block(request, from, range),
                             element);
    }
  } else if (request.kind == Kind::broadcast && rank != request.root) {
    bytes += copy_to_parts(slot(control, operation, round, request.root, 0), request.outputs,
                           operation.staged.piece(round), element);
  }
  return bytes;
}

}  // namespace sumpter::exchange
