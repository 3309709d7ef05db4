// What the members of one process share: the arena, and, where they are threads, each other's requests.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "exchange/arena.h"
#include "exchange/control.h"
#include "exchange/operation.h"
#include "sumpter/exchange.h"

namespace sumpter::exchange {

// Throws RequestError, naming the option, when one is out of range.
void check_options(const GroupOptions& options);

// WorkerCounters that threads can add to.
struct alignas(kLine) Tally {
  std::atomic<std::uint64_t> pieces{0}, bytes{0};
  void add(std::size_t read) {
    pieces.fetch_add(1, std::memory_order_relaxed);
    bytes.fetch_add(read, std::memory_order_relaxed);
  }
  WorkerCounters value() const {
    return {pieces.load(std::memory_order_relaxed), bytes.load(std::memory_order_relaxed)};
  }
};

// How members come together: in one GroupState, which they inherit where they are forked, or with one each.
enum class Meeting : std::uint8_t { joined, connected };

class GroupState {
 public:
  GroupState(const GroupOptions& options, Arena arena, Meeting meeting);

  const GroupOptions& options() const { return options_; }
  Meeting meeting() const { return meeting_; }
  const Arena& arena() const { return arena_; }
  const Control& control() const { return arena_.control(); }

  // Takes the rank and waits for the others. Throws RequestError, TimeoutError, or why the group was aborted meanwhile.
  // True when all turned out to be threads of this process that share this state.
  bool join(int rank);

  // The request of a rank's operation, for members of the same process: written before the operation is posted, kept
  // until all members have left it.
  void publish(std::uint64_t number, int rank, std::shared_ptr<const Operation> operation) {
    published_[index(number, rank)] = std::move(operation);
  }
  const Operation& published(std::uint64_t number, int rank) const { return *published_[index(number, rank)]; }

  // One for each of the group's reducer threads.
  std::vector<Tally>& reducer_tallies() { return reducer_tallies_; }

 private:
  std::size_t index(std::uint64_t number, int rank) const {
    return (number % kRing) * static_cast<std::size_t>(options_.members) + static_cast<std::size_t>(rank);
  }
  std::string missing() const;
  bool one_process() const;

  const GroupOptions options_;
  const Meeting meeting_;
  Arena arena_;
  std::vector<std::shared_ptr<const Operation>> published_;
  std::vector<Tally> reducer_tallies_;
};

std::vector<WorkerCounters> values_of(const std::vector<Tally>& tallies);

}  // namespace sumpter::exchange
