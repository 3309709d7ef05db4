#include "exchange/watch.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <condition_variable>
#include <fstream>
#include <mutex>
#include <sstream>

#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"

namespace sumpter::exchange {
namespace {

constexpr std::chrono::milliseconds kBeat{100};
constexpr double kSilence = 0.5;  // seconds without a beat after which /proc is asked

int open_pidfd(pid_t pid) { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0)); }

}  // namespace

std::uint64_t process_start(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string line;
  if (!std::getline(file, line)) return 0;
  // The name, in brackets, may hold anything; the state follows its last bracket, the start time is field 22.
  const auto bracket = line.rfind(')');
  if (bracket == std::string::npos) return 0;
  std::istringstream fields(line.substr(bracket + 1));
  std::string state, skipped;
  fields >> state;
  if (state == "Z" || state == "X") return 0;
  for (int field = 4; field < 22; ++field) fields >> skipped;
  std::uint64_t start = 0;
  fields >> start;
  return start;
}

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = {};
  return gethostname(name, HOST_NAME_MAX) == 0 ? name : "this host";
}

bool pidfd_works() { return FileDescriptor(open_pidfd(getpid())).is_open(); }

MemberWatch::MemberWatch(const Control& control, int rank, Watch kind)
    : control_(control), rank_(rank), peers_(static_cast<std::size_t>(control.members())) {
  const std::uint64_t own_start = control.rank(rank).start_time.load();
  bool beats = false;
  for (int other = 0; other < control.members(); ++other) {
    Peer& peer = peers_[static_cast<std::size_t>(other)];
    const RankBlock& block = control.rank(other);
    peer.pid = static_cast<pid_t>(block.pid.load());
    peer.start = block.start_time.load();
    peer.same_process = peer.pid == getpid() && peer.start == own_start;
    peer.seen = Clock::now();
    beats = beats || (block.beats.load() != 0 && control.members() > 1);
    if (peer.same_process || kind == Watch::heartbeat) continue;
    peer.pidfd = FileDescriptor(open_pidfd(peer.pid));
    peer.gone = peer.pidfd.is_open() ? process_start(peer.pid) != peer.start : errno == ESRCH;
  }
  if (!beats) return;
  if (control.rank(rank).beats.load() != 0 && kind == Watch::automatic) {
    log::info("rank {}: the system refuses pidfds; members are watched by their heartbeat", rank);
  }
  heart_ = std::jthread([this](const std::stop_token& stop) { beat(stop); });
}

void MemberWatch::beat(const std::stop_token& stop) const {
  name_this_thread("heartbeat");
  std::mutex mutex;
  std::condition_variable_any stopped;
  std::unique_lock lock(mutex);
  while (!stop.stop_requested()) {
    control_.rank(rank_).heartbeat.value.fetch_add(1);
    stopped.wait_for(lock, stop, kBeat, [] { return false; });
  }
}

const char* MemberWatch::fault_of(int rank) {
  if (control_.rank(rank).presence.load() == Presence::left) return "left the group";
  return died(rank) ? "died" : nullptr;
}

bool MemberWatch::died(int rank) {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  if (!peer.gone && !peer.same_process) peer.gone = is_gone(peer, rank);
  return peer.gone;
}

bool MemberWatch::is_gone(Peer& peer, int rank) const {
  if (peer.pidfd.is_open()) {
    pollfd poll_entry{.fd = peer.pidfd.get(), .events = POLLIN, .revents = 0};
    return poll(&poll_entry, 1, 0) > 0;
  }
  const std::uint64_t heartbeat = control_.rank(rank).heartbeat.value.load();
  if (heartbeat != peer.heartbeat) {
    peer.heartbeat = heartbeat;
    peer.seen = Clock::now();
    return false;
  }
  // Silence alone is no proof: a stopped process has no heartbeat, and is the time limit's business.
  return seconds_since(peer.seen) > kSilence && process_start(peer.pid) != peer.start;
}

}  // namespace sumpter::exchange
