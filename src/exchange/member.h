// One member's end of the group: its queue of unfinished operations and what drives them.
//
// Whoever has time calls progress(): callers in test() and wait(), and reducer threads. It does one ready piece of
// work. The mutex guards the queue and all steps but the pieces of in-place operations, which threads claim and sum in
// parallel.
#pragma once

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/trace.h"
#include "exchange/abort.h"
#include "exchange/arena.h"
#include "exchange/bell.h"
#include "exchange/group.h"
#include "exchange/operation.h"
#include "exchange/watch.h"
#include "sumpter/exchange.h"

namespace sumpter::exchange {

// That this rank has joined. It ends with the member, and also when the member cannot be made: nobody waits for it
// then.
class Membership {
 public:
  Membership(const Control& control, int rank) : control_(control), rank_(rank) {}
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;
  ~Membership() { end(); }
  void end() const;

 private:
  const Control control_;
  const int rank_;
};

class MemberState {
 public:
  // Blocks until all have joined; throws as GroupState::join.
  MemberState(std::shared_ptr<GroupState> group, int rank);
  MemberState(const MemberState&) = delete;
  MemberState& operator=(const MemberState&) = delete;
  ~MemberState();

  int rank() const { return rank_; }
  // In a child of the member's process, which has a copy of all of this and is not the member.
  bool is_copy() const { return getpid() != process_; }
  int members() const { return control_.members(); }
  Segments& segments() { return segments_; }
  bool readable_by_all(const void* data, std::size_t bytes) const;

  // Posts the operation. Blocks, helping, while this member is kRing operations ahead of another.
  std::shared_ptr<Operation> begin(Request request);
  bool test(Operation& operation);
  // Without a limit of its own, the group's.
  void wait(Operation& operation, std::optional<std::chrono::milliseconds> limit = std::nullopt);
  bool wait_for(Operation& operation, std::chrono::milliseconds duration);
  std::string pending(const Operation& operation) const;
  void abort(const std::string& reason);
  // Throws why the group is aborted; it is, once a member's process has died.
  void look();
  void pause_reducers(bool paused);
  void call();
  bool wait_until_called(const std::stop_token& stop);
  // Tells the others that this member will do no more, and stops its threads.
  void leave();
  ExchangeCounters counters() const;
  std::size_t arena_bytes() const { return group_->arena().held_bytes(); }
  std::int64_t process_of(int rank) const;

 private:
  // Who makes a step: a reducer makes none while reducers are paused.
  enum class By : std::uint8_t { caller, reducer };
  // How long a wait may last, and whether its end is a fault of the group.
  struct Limit {
    std::chrono::milliseconds time;
    bool aborts;
  };

  // begin: member.cpp
  void check(const Request& request) const;
  Places places_of(const Request& request) const;
  bool is_small(const Request& request) const;
  void post(const std::shared_ptr<Operation>& operation);

  // One step of work: progress.cpp. Faults in it abort the group.
  bool progress(Tally& tally, By by = By::caller);
  bool step(Tally& tally, By by);
  bool posted_by_all(std::uint64_t number) const;
  bool settle(Tally& tally);
  bool complete(const Operation& operation, Tally& tally);
  bool match(Operation& operation);
  void choose_way(Operation& operation);
  bool reach_in_place(Operation& operation);
  bool all_shares_done(const Operation& operation) const;
  void finish(const std::shared_ptr<Operation>& operation);
  bool staged_step(Tally& tally);
  bool try_copy_out(Operation& operation);
  bool try_sum(Operation& operation, Tally& tally);
  bool try_copy_in(Operation& operation);
  void advance(std::atomic<std::uint64_t>& word);
  // A piece has been summed: counts it, and shows it in the trace from `begin` on.
  void count(const Operation& operation, Tally& tally, std::size_t bytes, Clock::time_point begin) const;
  Clock::time_point trace_begin() const;
  static Trace::Argument operation_argument(const Operation& operation) {
    return {"operation", static_cast<std::int64_t>(operation.number)};
  }
  std::shared_ptr<Operation> claimable() const;
  bool claim_piece(Operation& operation, Tally& tally);
  void reduce_until(const std::stop_token& stop, std::size_t index, Tally& tally);
  void sleep_while_paused(const std::stop_token& stop);

  // Waiting and faults: wait.cpp
  void make_room(const Operation& operation);
  template <typename Done>
  bool wait_until(const Operation& operation, std::uint64_t needed, Limit limit, Done&& done);
  bool look_for_losses(const Operation& operation, std::uint64_t needed);
  void time_out(const Operation& operation, std::uint64_t needed, std::chrono::milliseconds limit);
  // Who keeps this member waiting, at least one, and with what.
  struct Late {
    std::vector<int> ranks;
    std::string text;  // "rank 1 (pid 71 on host) had not arrived"
  };
  Late late(const Operation& operation, std::uint64_t needed) const;
  std::string name(int rank) const;
  std::vector<int> laggards(const Operation& operation, std::uint64_t needed) const;
  void fault(const std::exception_ptr& error);
  void retire();
  void drain();
  [[noreturn]] void raise_abort();

  template <typename Test>
  bool all_ranks(Test&& test) const {
    for (int rank = 0; rank < members(); ++rank) {
      if (!test(control_.rank(rank))) return false;
    }
    return true;
  }
  RankBlock& own() const { return control_.rank(rank_); }
  void ring_waiters() const;
  void ring_reducers() const;

  const std::shared_ptr<GroupState> group_;
  const Control control_;
  const int rank_;
  const pid_t process_ = getpid();
  const bool one_process_;
  Trace* const trace_;  // null where nothing is traced
  const Membership membership_;
  Segments segments_;

  std::mutex mutex_;
  std::deque<std::shared_ptr<Operation>> queue_;  // unfinished, by number
  std::uint64_t last_ = 0;                        // number of the latest operation
  std::uint64_t left_by_all_ = 0;                 // at least; saves looking at everybody for each operation
  std::uint64_t staged_rounds_ = 0;               // of all matched operations
  bool staging_reserved_ = false;
  bool retired_ = false;
  std::atomic<bool> paused_{false};  // stored under the mutex
  std::condition_variable_any unpaused_;

  std::mutex watch_mutex_;
  MemberWatch watch_;
  std::exception_ptr own_fault_;  // what this member's threads threw, guarded by watch_mutex_

  std::atomic<Clock::rep> polled_{0};  // when test() last looked for losses
  Patience patience_;
  Tally own_tally_;
  std::vector<Tally> reducer_tallies_;  // of processes
  std::atomic<std::uint64_t> finished_{0}, in_place_{0}, staged_{0}, small_{0}, copied_in_{0}, copied_out_{0};
  std::atomic<std::int64_t> nanoseconds_waited_{0};
  std::once_flag left_;
  std::vector<std::jthread> reducers_;
};

}  // namespace sumpter::exchange
