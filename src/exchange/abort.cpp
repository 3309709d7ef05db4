#include "exchange/abort.h"

#include <algorithm>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "exchange/bell.h"
#include "exchange/watch.h"
#include "sumpter/exchange.h"

namespace sumpter::exchange {
namespace {

// The record is written in no time, unless its writer dies or is stopped in the middle.
bool is_written(const AbortRecord& record) {
  const auto start = Clock::now();
  while (record.state.load() != AbortState::written) {
    if (seconds_since(start) > 1) return false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace

std::string name_of_rank(const Control& control, int rank) {
  if (rank < 0 || rank >= control.members()) return "the caller";
  return fmt::format("rank {} (pid {} on {})", rank, control.rank(rank).pid.load(), host_name());
}

void ring_all(const Control& control) {
  for (int rank = 0; rank < control.members(); ++rank) {
    ring(control.rank(rank).waiters);
    ring(control.rank(rank).reducers);
    ring(control.rank(rank).called);
  }
}

bool abort_group(const Control& control, Fault fault, int culprit, std::uint64_t operation, std::string_view text) {
  AbortRecord& record = control.header().abort;
  AbortState expected = AbortState::none;
  if (!record.state.compare_exchange_strong(expected, AbortState::writing)) return false;
  record.fault = fault;
  record.culprit = culprit;
  record.operation = operation;
  record.length = std::min(text.size(), sizeof(record.text));
  std::copy_n(text.data(), record.length, record.text);
  record.state.store(AbortState::written);
  ring_all(control);
  return true;
}

std::uint64_t mismatched_operation(const Control& control) {
  const AbortRecord& record = control.header().abort;
  return is_written(record) && record.fault == Fault::mismatch ? record.operation : 0;
}

void throw_abort(const Control& control) {
  const AbortRecord& record = control.header().abort;
  if (!is_written(record)) throw MemberLostError("the group was aborted by a member that could not say why", -1);
  const std::string text(record.text, record.length);
  switch (record.fault) {
    case Fault::mismatch:
      throw MismatchError(text, record.culprit);
    case Fault::timeout:
      throw TimeoutError(text, record.culprit);
    case Fault::lost:
      break;
  }
  throw MemberLostError(text, record.culprit);
}

}  // namespace sumpter::exchange
