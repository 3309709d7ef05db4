// Noticing that another process is gone: by a pidfd, or where the system refuses those by a word that every process
// advances, and by what /proc says of it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "exchange/arena.h"
#include "exchange/control.h"

namespace sumpter::exchange {

// When the process started, in clock ticks since boot, which tells two processes of one pid apart; 0 when it is gone or
// a zombie.
std::uint64_t process_start(pid_t pid);

std::string host_name();

// True when this process may use pidfds.
bool pidfd_works();

// Watches the other members for one member. Made after all have joined; one thread at a time asks.
class MemberWatch {
 public:
  MemberWatch(const Control& control, int rank, Watch kind);

  // Why the rank cannot do its part any more ("died", "left the group"), or null when nothing is known against it.
  const char* fault_of(int rank);
  // True when the rank's process is known to be gone.
  bool died(int rank);
  bool same_process(int rank) const { return peers_[static_cast<std::size_t>(rank)].same_process; }

 private:
  struct Peer {
    pid_t pid = 0;
    std::uint64_t start = 0;
    bool same_process = false;
    bool gone = false;
    FileDescriptor pidfd;
    std::uint64_t heartbeat = 0;
    Clock::time_point seen;  // when the heartbeat was last seen to move
  };
  bool is_gone(Peer& peer, int rank) const;
  void beat(const std::stop_token& stop) const;

  Control control_;
  int rank_;
  std::vector<Peer> peers_;
  std::jthread heart_;
};

}  // namespace sumpter::exchange
