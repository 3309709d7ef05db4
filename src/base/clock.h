// One clock for everything that is timed: monotonic, in seconds as double where people see it.
#pragma once

#include <chrono>

namespace sumpter {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

inline double seconds_between(Clock::time_point start, Clock::time_point end) { return Seconds(end - start).count(); }
inline double seconds_since(Clock::time_point start) { return seconds_between(start, Clock::now()); }

}  // namespace sumpter
