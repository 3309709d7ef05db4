#include "exchange/group.h"

#include <unistd.h>

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"
#include "exchange/abort.h"
#include "exchange/bell.h"
#include "exchange/watch.h"

namespace sumpter::exchange {

void check_options(const GroupOptions& options) {
  const auto check = [](const char* name, std::uint64_t value, std::uint64_t least, std::uint64_t most) {
    if (value < least || value > most)
      raise<RequestError>("group option {} is {}; it must be {} to {}", name, value, least, most);
  };
  const auto unsigned_value = [](auto value) {
    return value < 0 ? ~std::uint64_t{0} : static_cast<std::uint64_t>(value);
  };
  if (options.members < 1 || options.members > kMaxMembers) {
    raise<RequestError>("group option members is {}; it must be 1 to {}", options.members, kMaxMembers);
  }
  check("piece", options.piece, 64, 16 * kMiB);
  if (options.piece % kLine != 0)
    raise<RequestError>("group option piece is {}; it must be a multiple of 64", options.piece);
  check("window", unsigned_value(options.window), 1, 64);
  check("reducers", unsigned_value(options.reducers), 0, 1024);
  if (options.time_limit.count() <= 0) {
    raise<RequestError>("group option time_limit is {} ms; it must be positive", options.time_limit.count());
  }
  if (options.reducer_cores.empty()) return;
  const std::vector<int> usable = numbers_of_usable_cores();
  for (const int core : options.reducer_cores) {
    if (std::find(usable.begin(), usable.end(), core) == usable.end()) {
      raise<RequestError>("group option reducer_cores has core {}, which this process may not use; it may use {}", core,
                          fmt::join(usable, ", "));
    }
  }
}

GroupState::GroupState(const GroupOptions& options, Arena arena, Meeting meeting)
    : options_(options),
      meeting_(meeting),
      arena_(std::move(arena)),
      published_(static_cast<std::size_t>(options.members) * kRing),
      reducer_tallies_(static_cast<std::size_t>(options.reducers)) {}

std::string GroupState::missing() const {
  std::string ranks;
  for (int rank = 0; rank < options_.members; ++rank) {
    if (control().rank(rank).presence.load() < Presence::joined)
      ranks += fmt::format("{}{}", ranks.empty() ? "" : ", ", rank);
  }
  return ranks;
}

bool GroupState::join(int rank) {
  if (rank < 0 || rank >= options_.members) {
    raise<RequestError>("rank {} cannot join a group of {}; ranks are 0 to {}", rank, options_.members,
                        options_.members - 1);
  }
  RankBlock& own = control().rank(rank);
  Presence expected = Presence::absent;
  if (!own.presence.compare_exchange_strong(expected, Presence::joining)) {
    raise<RequestError>("rank {} has joined already; each member needs a rank of its own", rank);
  }
  own.pid.store(static_cast<std::uint64_t>(getpid()));
  own.start_time.store(process_start(getpid()));
  const bool pidfd = options_.watch != Watch::heartbeat && pidfd_works();
  if (options_.watch == Watch::pidfd && !pidfd) {
    raise<SystemError>("rank {}: members cannot be watched by pidfd here; choose Watch::automatic", rank);
  }
  own.beats.store(pidfd ? 0 : 1);
  own.presence.store(Presence::joined);
  ring_all(control());

  const auto deadline = Clock::now() + options_.time_limit;
  Patience patience;
  Waiter waiter(own.waiters, patience);
  while (!missing().empty()) {
    if (aborted(control())) throw_abort(control());
    const bool slept = waiter.pause([&] { return missing().empty() || aborted(control()); });
    if (!slept || Clock::now() < deadline) continue;
    const std::string text = fmt::format("rank {} waited {:.1f} s for all members to join the group; missing: rank {}",
                                         rank, Seconds(options_.time_limit).count(), missing());
    abort_group(control(), Fault::timeout, std::stoi(missing()), 0, text);
    throw_abort(control());
  }
  return one_process();
}

bool GroupState::one_process() const {
  // Threads of one process that connected know nothing of each other's requests.
  if (meeting_ == Meeting::connected) return options_.members == 1;
  const RankBlock& first = control().rank(0);
  const auto alike = [&](int rank) {
    const RankBlock& other = control().rank(rank);
    return other.pid.load() == first.pid.load() && other.start_time.load() == first.start_time.load();
  };
  for (int rank = 1; rank < options_.members; ++rank) {
    if (!alike(rank)) return false;
  }
  return true;
}

std::vector<WorkerCounters> values_of(const std::vector<Tally>& tallies) {
  std::vector<WorkerCounters> values;
  values.reserve(tallies.size());
  for (const Tally& tally : tallies) values.push_back(tally.value());
  return values;
}

}  // namespace sumpter::exchange
