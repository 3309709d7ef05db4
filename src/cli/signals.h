// Ctrl-C and SIGTERM: the first asks the run to stop, the second ends the process at once.
#pragma once

#include <atomic>
#include <csignal>

namespace sumpter::cli {

// Handles both signals while it lives; one at a time. A signal that is ignored when it begins stays ignored.
class StopSignals {
 public:
  StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals();

  // Set by the first signal.
  const std::atomic<bool>& stop() const;

 private:
  struct sigaction interrupt_before_ {};
  struct sigaction terminate_before_ {};
};

}  // namespace sumpter::cli
