// Members of a group for tests: the same body run by threads or by forked processes, which can be killed, stopped and
// listened to while they run. Results and faults come back over sockets, so that both kinds are judged alike.
//
// Processes are forked from the calling thread: start them while the program has no other thread. They end by _exit,
// and are killed when the test program dies.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/clock.h"

namespace sumpter::tests {

enum class As { threads, processes };
std::string_view name_of(As as);

// "rank 1 (pid 71 on host)", as messages name a member.
std::string name_of_rank(int rank, std::int64_t pid);

// The bytes of an array, to be given back as a result, and the array that such bytes hold.
template <typename T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}
template <typename T>
std::vector<T> values_of(const std::string& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) {
    std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  }
  return values;
}

// What a body sees of the test.
class Member {
 public:
  Member(int rank, int socket) : rank_(rank), socket_(socket) {}
  int rank() const { return rank_; }
  // A line that Members::hear receives, at once.
  void say(const std::string& line);
  // Blocks until Members::tell sends a line; throws std::runtime_error when the test has gone.
  std::string hear();
  // Appends to Outcome::result; arrives even when the body throws or is killed later.
  void give(const std::string& bytes);

 private:
  int rank_;
  int socket_;
};
using Body = std::function<void(Member&)>;

// How a member ended.
struct Outcome {
  int rank = -1;
  pid_t pid = 0;        // of the process that it ran in
  bool done = false;    // the body returned
  std::string kind;     // the type of what it threw ("MemberLostError"), "check" where a gtest check failed in a child,
                        // "overdue" where it was killed because its time was over
  std::string message;  // what() of that
  int culprit = -1;     // of an ExchangeError
  std::string result;   // what the body gave
  int exit_code = -1;   // processes that exited: 0 when the body returned, 1 when it threw
  int signal = 0;       // processes that were killed
  Clock::time_point ended;  // when the body returned or threw; unset for those killed
};
// Has the kernel send this process a signal after a while: a fault at a moment that no code chose. For bodies that run
// as processes.
void signal_myself_after(int signal, std::chrono::microseconds delay);

// "rank 2 (pid 71): MemberLostError: ..." for messages of failed checks.
std::string describe(const Outcome& outcome);

// A Body that is running `count` times.
class Members {
 public:
  Members(int count, As as, Body body);
  Members(const Members&) = delete;
  Members& operator=(const Members&) = delete;
  // Kills processes that still run; waits for threads as wait_all does.
  ~Members();

  int count() const { return static_cast<int>(seats_.size()); }
  pid_t pid(int rank) const;
  // Sends a signal to a process.
  void send(int rank, int signal);
  void tell(int rank, const std::string& line);
  // The next line that the member said; nothing when it ended first. Judged overdue after the limit, as in wait.
  std::optional<std::string> hear(int rank, std::chrono::milliseconds limit = kLimit);
  // Blocks until the member has ended. One that is overdue is killed if it is a process; a thread cannot be, so the
  // whole program is aborted with a message.
  const Outcome& wait(int rank, std::chrono::milliseconds limit = kLimit);
  std::vector<Outcome> wait_all(std::chrono::milliseconds limit = kLimit);

  static constexpr std::chrono::milliseconds kLimit{60'000};

 private:
  struct Seat {
    int socket = -1;  // this side's end; -1 once the member has ended
    std::thread thread;
    std::string received;            // bytes that are not a whole frame yet
    std::vector<std::string> lines;  // said, and not yet heard
    Outcome outcome;
  };
  void start(Seat& seat, const Body& body);
  void receive(Clock::time_point deadline);
  void take_frames(Seat& seat);
  void finish(Seat& seat);
  void overdue(Seat& seat);

  As as_;
  std::vector<Seat> seats_;
};

// Members that are started and waited for.
std::vector<Outcome> run_members(int count, As as, const Body& body, std::chrono::milliseconds limit = Members::kLimit);

}  // namespace sumpter::tests
