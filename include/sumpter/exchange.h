// The exchange: members of one machine (threads of a process, or processes of one user) reduce and pass on arrays
// through shared memory. A C++ loop of your own needs this header only; examples/ has it in twenty lines.
//
// Every member calls the same operations in the same order. Sums of floating types are float32 (float64 for f64), over
// the members in rank order, each element on its own: the same bits on every member, for every piece size and number of
// reducers, run after run. docs/routes.md gives each operation's steps and bytes, docs/errors.md what is usable after a
// fault.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "sumpter/error.h"
#include "sumpter/spec.h"

namespace sumpter {

// The group was aborted: it refuses all further work on every member; a new one can be made in the same process. Where
// an operation was unfinished, its floating outputs are filled with NaN; integer outputs are undefined.
class ExchangeError : public Error {
 public:
  ExchangeError(const std::string& message, int culprit) : Error(message), culprit_(culprit) {}
  // The rank that the fault is laid to, or -1 where it cannot be laid to one.
  int culprit() const { return culprit_; }

 private:
  int culprit_;
};
// Members called different operations, or the same with different types, counts or reductions; both sides are shown.
// No caller's memory was written by the operation.
class MismatchError : public ExchangeError {
 public:
  using ExchangeError::ExchangeError;
};
// A member did not do its part within the time limit.
class TimeoutError : public ExchangeError {
 public:
  using ExchangeError::ExchangeError;
};
// A member died, left the group in mid-operation, or aborted it with a reason of its own.
class MemberLostError : public ExchangeError {
 public:
  using ExchangeError::ExchangeError;
};

// How a member notices that another process is gone. `automatic` takes the first that the system allows, in this order.
enum class Watch : std::uint8_t { automatic, pidfd, heartbeat };

class Trace;

struct GroupOptions {
  int members = 1;                             // 1 to 64
  std::size_t piece = std::size_t{128} << 10;  // bytes of one piece; at least 64, a multiple of 64, at most 16 MiB
  // Threads that only sum: of the group (threads), of this member (processes; not compared by connect).
  int reducers = 0;
  // Reducer i runs on core reducer_cores[i % size] only; empty: where the system puts it. Not compared by connect.
  std::vector<int> reducer_cores = {};
  int window = 4;                                 // staged rounds in flight, each of one piece per member; 1 to 64
  std::chrono::milliseconds time_limit{600'000};  // for one operation, from the moment it is waited for
  Watch watch = Watch::automatic;
  // Thread members and connected processes; forked ones ignore it. Not compared by connect, not owned, outlives the
  // group; null: none. Each piece that the counters count is a "sum" {operation, bytes} on the row of the thread that
  // did it ("copy" where the operation only copies); each stretch of a wait in which there is nothing to help with is a
  // "wait" {operation}.
  Trace* trace = nullptr;
};

// A stretch of a member's memory.
struct Part {
  void* data = nullptr;
  std::size_t count = 0;  // elements
};

// Receives sums while they are in cache instead of having them written back: the place where an optimizer stands.
class SumConsumer {
 public:
  SumConsumer() = default;
  SumConsumer(const SumConsumer&) = delete;
  SumConsumer& operator=(const SumConsumer&) = delete;
  virtual ~SumConsumer() = default;
  // `sum` holds elements [begin_in_part, begin_in_part + sum.size()) of part number `part`. Called once for each
  // element, by any summing thread, several at a time for disjoint ranges. What it throws aborts the group with that
  // message.
  virtual void consume(std::size_t part, std::size_t begin_in_part, std::span<const float> sum) = 0;
};

struct AllReduceOptions {
  ElementType type = ElementType::f32;
  Reduction reduction = Reduction::sum;
  // This member's weight in a weighted_mean. With 0 its values are not read; it gets the result all the same, unless
  // its parts are null.
  std::uint64_t rows = 1;
  SumConsumer* consumer = nullptr;  // thread members, f32, sum/average/weighted_mean only; the same one on every member
  // What the caller has rounded its values to. Changes nothing here: members compare it, and show it where they differ.
  WireFormat wire = WireFormat::f32;
};

// What one member's threads did, or what all reducers did; grows for as long as the group lives.
struct WorkerCounters {
  std::uint64_t pieces = 0;  // pieces summed
  std::uint64_t bytes = 0;   // bytes read for them
};
struct ExchangeCounters {
  std::uint64_t operations = 0;                       // finished by this member
  std::uint64_t in_place = 0, staged = 0, small = 0;  // how those were done
  std::uint64_t bytes_copied_in = 0, bytes_copied_out = 0;
  WorkerCounters own;                    // by the threads that called this member
  std::vector<WorkerCounters> reducers;  // one for each reducer thread of the group (threads) or of this member
  double seconds_waited = 0;             // spent in wait() of any operation
};

class Exchange;

namespace exchange {
class GroupState;
class MemberState;
struct Operation;
}  // namespace exchange

// One operation under way. Buffers must stay where they are until wait() has returned or thrown. Several threads may
// test it and wait for it at once. Destroying an unfinished Work waits for it and logs what it would have thrown.
class Work {
 public:
  Work() = default;
  Work(Work&&) noexcept;
  Work& operator=(Work&&) noexcept;
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;
  ~Work();

  bool valid() const { return operation_ != nullptr; }
  // Does whatever step is ready, at most one, without blocking. True once the operation is finished; throws as wait
  // does.
  bool test();
  // Blocks, helping with the work, until this member's result is complete and its buffers are its own again. Throws
  // MismatchError, TimeoutError, MemberLostError; then the group is aborted.
  void wait();
  // The same with a time limit of its own in the place of the group's: when it ends, the group is aborted.
  void wait(std::chrono::milliseconds time_limit);
  // Waits so long at most. False when the operation is not finished then: it goes on, and nothing is aborted.
  bool wait_for(std::chrono::milliseconds duration);
  // "all_reduce number 7 of 1024 f32, sum: rank 1 (pid 71 on host) had not arrived": what an unfinished operation waits
  // for at this moment, for messages.
  std::string pending() const;

 private:
  friend class Exchange;
  Work(std::shared_ptr<exchange::MemberState> member, std::shared_ptr<exchange::Operation> operation);
  std::shared_ptr<exchange::MemberState> member_;
  std::shared_ptr<exchange::Operation> operation_;
};

// Memory of the arena, which every member can read where it lies; freed on destruction. Zeroed, aligned to 4096.
class SharedMemory {
 public:
  SharedMemory() = default;
  SharedMemory(SharedMemory&&) noexcept;
  SharedMemory& operator=(SharedMemory&&) noexcept;
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();
  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  friend class Exchange;
  std::shared_ptr<exchange::MemberState> member_;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// Where processes that did not fork from one another find each other: a store of small values, as torch's Store is.
class Rendezvous {
 public:
  Rendezvous() = default;
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;
  virtual ~Rendezvous() = default;
  virtual void set(const std::string& key, const std::string& value) = 0;
  // Blocks until the key is set; throws TimeoutError after the limit.
  virtual std::string get(const std::string& key, std::chrono::milliseconds limit) = 0;
};

// Values as files of a directory that all processes see (on one machine: any directory). Writes are atomic.
class FileRendezvous : public Rendezvous {
 public:
  explicit FileRendezvous(std::filesystem::path directory);
  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, std::chrono::milliseconds limit) override;

 private:
  std::filesystem::path directory_;
};

// One member's end of the group. Operations are numbered in the order of the begin_ calls; one thread at a time begins,
// any thread may test or wait. Destroying it leaves the group: others that still need this member raise.
class Exchange {
 public:
  Exchange(Exchange&&) noexcept;
  Exchange& operator=(Exchange&&) noexcept;
  ~Exchange();

  // Joins processes that are unrelated. Every one calls it with its rank and the same options; blocks until all have.
  // Throws RequestError (options), TimeoutError (somebody did not come), SystemError; MismatchError when options
  // differ.
  static Exchange connect(int rank, const GroupOptions& options, Rendezvous& rendezvous);

  int rank() const;
  int members() const;

  // Arena memory. Throws SystemError when there is not enough. No member is asked or told.
  SharedMemory allocate(std::size_t bytes);
  // True when every other member can read all of [data, data + bytes) where it lies.
  bool readable_by_all(const void* data, std::size_t bytes) const;

  // In place: each part is input and output. Parts are counted through as if they were one array.
  // The order of the parts and their counts are the same on every member.
  Work begin_all_reduce(std::span<const Part> parts, const AllReduceOptions& options);
  // The root's part goes to everyone. Bytes are not looked at.
  Work begin_broadcast(Part part, ElementType type, int root);
  // `output` holds members() times input.count elements, in rank order; input may be the own block of it.
  Work begin_all_gather(Part input, Part output, ElementType type);
  // `input` holds members() blocks of output.count elements; block r, reduced, becomes rank r's output.
  Work begin_reduce_scatter(Part input, Part output, const AllReduceOptions& options);
  // `label` says what the barrier stands for, for members that agree on something done elsewhere: at most 47
  // characters, compared, and shown where members differ.
  Work begin_barrier(std::string_view label = {});

  void all_reduce(Part part, const AllReduceOptions& options = {}) { begin_all_reduce({&part, 1}, options).wait(); }
  void all_reduce(std::span<float> values, Reduction reduction = Reduction::sum) {
    all_reduce({values.data(), values.size()}, {.reduction = reduction});
  }
  void broadcast(Part part, ElementType type, int root) { begin_broadcast(part, type, root).wait(); }
  void barrier() { begin_barrier().wait(); }

  // Makes every member raise MemberLostError with this rank and reason. May be called from any thread, more than once.
  void abort(const std::string& reason);
  // Throws what the group was aborted for; where a member's process has died, aborts it first. Does not block.
  void check() const;

  // Reducer threads of this member sleep until they are wanted again. Changes who sums, never the sums.
  void pause_reducers(bool paused);

  // Makes wait_until_called return on every member, now and later on. Once is enough; any thread may call both.
  void call();
  // Blocks, asleep, until a member calls. False when `stop` is requested or the group is aborted first.
  bool wait_until_called(const std::stop_token& stop) const;

  ExchangeCounters counters() const;
  // Bytes of memory that the arena holds now, its slots and what members allocated included.
  std::size_t arena_bytes() const;
  // The process of a member.
  std::int64_t process_of(int rank) const;

 private:
  friend class Group;
  explicit Exchange(std::shared_ptr<exchange::MemberState> member);
  std::shared_ptr<exchange::MemberState> member_;
};

// A group whose members are threads of this process, or processes that it forks: make it first, then every thread or
// child calls join with a rank of its own.
class Group {
 public:
  // Throws RequestError when an option is out of range, SystemError when the arena cannot be made.
  explicit Group(const GroupOptions& options);
  Group(Group&&) noexcept;
  Group& operator=(Group&&) noexcept;
  ~Group();

  // Blocks until all members have joined. Throws RequestError when the rank is taken or out of range, TimeoutError.
  Exchange join(int rank);

  // Makes every member raise, whoever calls: for a parent that sees a member fail before it could say so itself.
  void abort(int culprit, const std::string& reason);

  // What the group's reducer threads did (thread members).
  std::vector<WorkerCounters> reducer_counters() const;

  // Bytes of memory that the arena holds now, its slots and what members allocated included.
  std::size_t arena_bytes() const;

 private:
  std::shared_ptr<exchange::GroupState> state_;
};

}  // namespace sumpter
