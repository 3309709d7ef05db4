// The first fault of a group: written once, read by everybody, thrown by every wait.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "exchange/control.h"

namespace sumpter::exchange {

// Sequentially consistent with the counting of claims in flight: a claim begun after an abort sees it.
inline bool aborted(const Control& control) { return control.header().abort.state.load() != AbortState::none; }

// Aborts the group for this reason and wakes everybody; false when it has been aborted already. The text is cut at
// 1 KiB.
bool abort_group(const Control& control, Fault fault, int culprit, std::uint64_t operation, std::string_view text);

// The operation that did not match, where that is why the group was aborted; else 0.
std::uint64_t mismatched_operation(const Control& control);

// Throws what the record says. Call when aborted().
[[noreturn]] void throw_abort(const Control& control);

// "rank 2 (pid 71 on host)", for messages; "the caller" for ranks that do not exist.
std::string name_of_rank(const Control& control, int rank);

// Wakes everybody, whatever they wait for.
void ring_all(const Control& control);

}  // namespace sumpter::exchange
