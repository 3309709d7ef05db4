// Who sums while the callers compute: measured when a group is made.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "c10d/completer.h"
#include "sumpter/exchange.h"

namespace sumpter {

struct Choice {
  Reductions reductions = Reductions::waiting;
  std::string reason;  // with the times, for people
};

// Plays a few small training steps both ways, in turns, and takes the faster for all members alike. `known` is what
// this process has found earlier; when all members have such a finding, rank 0's is taken and nothing is measured.
// Collective; takes some tens of milliseconds. `compute` keeps all threads busy that a member's training will use, for
// some hundred microseconds. The exchange has reducers.
Choice choose_reductions(Exchange& exchange, const std::optional<Choice>& known, const std::function<void()>& compute);

}  // namespace sumpter
