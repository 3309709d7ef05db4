#include "cli/signals.h"

#include <unistd.h>

#include <cerrno>
#include <string_view>

namespace sumpter::cli {
namespace {

// A handler has no other way to reach what it sets.
std::atomic<bool> stop_requested{false};
static_assert(std::atomic<bool>::is_always_lock_free);

extern "C" void request_stop(int signal) {
  const int interrupted = errno;
  if (stop_requested.exchange(true)) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
    return;
  }
  constexpr std::string_view kSaid = "\nsumpter: stopping after this step; once more ends at once\n";
  [[maybe_unused]] const auto ignored = ::write(STDERR_FILENO, kSaid.data(), kSaid.size());
  errno = interrupted;
}

void handle(int signal, struct sigaction& before) {
  sigaction(signal, nullptr, &before);
  if (before.sa_handler == SIG_IGN) return;
  struct sigaction action {};
  action.sa_handler = request_stop;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, nullptr);
}

}  // namespace

StopSignals::StopSignals() {
  stop_requested = false;
  handle(SIGINT, interrupt_before_);
  handle(SIGTERM, terminate_before_);
}

StopSignals::~StopSignals() {
  sigaction(SIGINT, &interrupt_before_, nullptr);
  sigaction(SIGTERM, &terminate_before_, nullptr);
}

const std::atomic<bool>& StopSignals::stop() const { return stop_requested; }

}  // namespace sumpter::cli
