#include "tests/support/members.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <utility>

#include "base/error.h"
#include "sumpter/exchange.h"

namespace sumpter::tests {
namespace {

// A frame on the socket: what it is, how long it is, its bytes.
enum class Frame : std::uint32_t { line, result, fault, done };
struct Header {
  Frame frame;
  std::uint32_t bytes;
};
// The fixed part of a fault's and of done's bytes; a fault's kind and message follow, with a newline between.
struct End {
  std::int64_t nanoseconds;  // of Clock
  std::int64_t culprit;
};

// False when the other side has gone.
bool send_all(int socket, const char* data, std::size_t bytes) {
  while (bytes > 0) {
    const ssize_t sent = ::send(socket, data, bytes, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) {
      continue;
    }
    if (sent < 0) {
      return false;
    }
    data += sent;
    bytes -= static_cast<std::size_t>(sent);
  }
  return true;
}

void send_frame(int socket, Frame frame, const std::string& bytes) {
  const Header header{frame, static_cast<std::uint32_t>(bytes.size())};
  std::string whole(reinterpret_cast<const char*>(&header), sizeof header);
  whole += bytes;
  if (!send_all(socket, whole.data(), whole.size())) {
    raise<std::runtime_error>("a member's socket is closed: {}", errno_text());
  }
}

std::string end_of(int culprit) {
  const End end{Clock::now().time_since_epoch().count(), culprit};
  return {reinterpret_cast<const char*>(&end), sizeof end};
}

// The name of an exception's type as tests compare it, and the rank that it blames.
std::pair<std::string, int> classify(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const MismatchError& e) {
    return {"MismatchError", e.culprit()};
  } catch (const TimeoutError& e) {
    return {"TimeoutError", e.culprit()};
  } catch (const MemberLostError& e) {
    return {"MemberLostError", e.culprit()};
  } catch (const ExchangeError& e) {
    return {"ExchangeError", e.culprit()};
  } catch (const RequestError&) {
    return {"RequestError", -1};
  } catch (const SystemError&) {
    return {"SystemError", -1};
  } catch (const Error&) {
    return {"Error", -1};
  } catch (const std::exception&) {
    return {"exception", -1};
  } catch (...) {
    return {"unknown", -1};
  }
}

// Runs the body to its end and says how it ended. True when it returned.
bool run_body(const Body& body, int rank, int socket) {
  try {
    Member member(rank, socket);
    body(member);
    send_frame(socket, Frame::done, end_of(-1));
    return true;
  } catch (...) {
    const auto error = std::current_exception();
    const auto [kind, culprit] = classify(error);
    send_frame(socket, Frame::fault, end_of(culprit) + kind + "\n" + sumpter::describe(error));
    return false;
  }
}

[[noreturn]] void run_child(const Body& body, int rank, int socket, pid_t parent) {
  // A test program that is killed must not leave children behind.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) {
    ::_exit(1);
  }
  const bool failed_before = ::testing::Test::HasFailure();
  bool done = false;
  try {
    done = run_body(
        [&](Member& member) {
          body(member);
          if (!failed_before && ::testing::Test::HasFailure()) {
            throw std::logic_error("a check failed in the member's process; its output names it");
          }
        },
        rank, socket);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "rank %d: %s\n", rank, e.what());
  }
  std::fflush(nullptr);
  ::_exit(done ? 0 : 1);
}

}  // namespace

std::string name_of_rank(int rank, std::int64_t pid) {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return "rank " + std::to_string(rank) + " (pid " + std::to_string(pid) + " on " + host.data() + ")";
}

std::string_view name_of(As as) { return as == As::threads ? "threads" : "processes"; }

void Member::say(const std::string& line) { send_frame(socket_, Frame::line, line); }

void Member::give(const std::string& bytes) { send_frame(socket_, Frame::result, bytes); }

std::string Member::hear() {
  std::string line;
  char letter = 0;
  while (true) {
    const ssize_t got = ::recv(socket_, &letter, 1, 0);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got <= 0) {
      throw std::runtime_error("the test has gone");
    }
    if (letter == '\n') {
      return line;
    }
    line += letter;
  }
}

void signal_myself_after(int signal, std::chrono::microseconds delay) {
  sigevent event{};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = signal;
  timer_t timer{};
  itimerspec when{};
  // Zero would disarm the timer.
  const auto nanoseconds = std::max<std::int64_t>(std::chrono::nanoseconds(delay).count(), 1);
  when.it_value.tv_sec = nanoseconds / 1'000'000'000;
  when.it_value.tv_nsec = nanoseconds % 1'000'000'000;
  if (::timer_create(CLOCK_MONOTONIC, &event, &timer) != 0 || ::timer_settime(timer, 0, &when, nullptr) != 0) {
    raise<SystemError>("cannot set a timer: {}", errno_text());
  }
}

std::string describe(const Outcome& outcome) {
  std::string end = "did not end";
  if (outcome.done) {
    end = "returned";
  } else if (!outcome.kind.empty()) {
    end = outcome.kind + ": " + outcome.message;
  } else if (outcome.signal != 0) {
    end = fmt::format("killed by signal {}", outcome.signal);
  } else if (outcome.exit_code >= 0) {
    end = fmt::format("exited with {} without a word", outcome.exit_code);
  }
  return fmt::format("rank {} (pid {}): {}", outcome.rank, outcome.pid, end);
}

Members::Members(int count, As as, Body body) : as_(as), seats_(static_cast<std::size_t>(count)) {
  std::fflush(nullptr);
  for (int rank = 0; rank < count; ++rank) {
    Seat& seat = seats_[static_cast<std::size_t>(rank)];
    seat.outcome.rank = rank;
    start(seat, body);
  }
}

Members::~Members() {
  if (as_ == As::processes) {
    for (const Seat& seat : seats_) {
      if (seat.socket >= 0) {
        ::kill(seat.outcome.pid, SIGKILL);
      }
    }
  }
  wait_all();
}

void Members::start(Seat& seat, const Body& body) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    raise<SystemError>("cannot make a socket for a member: {}", errno_text());
  }
  seat.socket = ends[0];
  const int rank = seat.outcome.rank;
  if (as_ == As::threads) {
    seat.outcome.pid = ::getpid();
    seat.thread = std::thread([body, rank, socket = ends[1]] {
      run_body(body, rank, socket);
      ::close(socket);
    });
    return;
  }
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) {
    raise<SystemError>("cannot fork a member: {}", errno_text());
  }
  if (pid == 0) {
    for (const Seat& other : seats_) {
      if (other.socket >= 0) {
        ::close(other.socket);
      }
    }
    run_child(body, rank, ends[1], parent);
  }
  ::close(ends[1]);
  seat.outcome.pid = pid;
}

pid_t Members::pid(int rank) const { return seats_.at(static_cast<std::size_t>(rank)).outcome.pid; }

void Members::send(int rank, int signal) {
  if (as_ == As::threads) {
    throw std::logic_error("a thread cannot be sent a signal: run the members as processes");
  }
  if (::kill(pid(rank), signal) != 0) {
    raise<SystemError>("cannot send signal {} to rank {} (pid {}): {}", signal, rank, pid(rank), errno_text());
  }
}

void Members::tell(int rank, const std::string& line) {
  const std::string whole = line + "\n";
  const Seat& seat = seats_.at(static_cast<std::size_t>(rank));
  if (seat.socket < 0 || !send_all(seat.socket, whole.data(), whole.size())) {
    raise<std::runtime_error>("rank {} has ended and cannot be told '{}'", rank, line);
  }
}

std::optional<std::string> Members::hear(int rank, std::chrono::milliseconds limit) {
  Seat& seat = seats_.at(static_cast<std::size_t>(rank));
  const auto deadline = Clock::now() + limit;
  while (seat.lines.empty() && seat.socket >= 0) {
    receive(deadline);
    if (Clock::now() >= deadline) {
      overdue(seat);
    }
  }
  if (seat.lines.empty()) {
    return std::nullopt;
  }
  std::string line = std::move(seat.lines.front());
  seat.lines.erase(seat.lines.begin());
  return line;
}

const Outcome& Members::wait(int rank, std::chrono::milliseconds limit) {
  Seat& seat = seats_.at(static_cast<std::size_t>(rank));
  const auto deadline = Clock::now() + limit;
  while (seat.socket >= 0) {
    receive(deadline);
    if (Clock::now() >= deadline) {
      overdue(seat);
    }
  }
  return seat.outcome;
}

std::vector<Outcome> Members::wait_all(std::chrono::milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  std::vector<Outcome> outcomes;
  for (const Seat& seat : seats_) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    outcomes.push_back(wait(seat.outcome.rank, std::max(left, std::chrono::milliseconds(1))));
  }
  return outcomes;
}

// Takes in what any member has sent, so that none blocks on a full socket while another is waited for.
void Members::receive(Clock::time_point deadline) {
  std::vector<pollfd> polls;
  std::vector<Seat*> seats;
  for (Seat& seat : seats_) {
    if (seat.socket >= 0) {
      polls.push_back({seat.socket, POLLIN, 0});
      seats.push_back(&seat);
    }
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  if (::poll(polls.data(), polls.size(), static_cast<int>(std::max<std::int64_t>(left, 0))) <= 0) {
    return;
  }
  std::vector<char> buffer(std::size_t{1} << 16);
  for (std::size_t i = 0; i < polls.size(); ++i) {
    if (polls[i].revents == 0) {
      continue;
    }
    const ssize_t got = ::recv(polls[i].fd, buffer.data(), buffer.size(), 0);
    if (got > 0) {
      seats[i]->received.append(buffer.data(), static_cast<std::size_t>(got));
      take_frames(*seats[i]);
    } else if (got == 0 || errno != EINTR) {
      finish(*seats[i]);
    }
  }
}

void Members::take_frames(Seat& seat) {
  Header header{};
  std::size_t at = 0;
  while (seat.received.size() - at >= sizeof header) {
    std::memcpy(&header, seat.received.data() + at, sizeof header);
    if (seat.received.size() - at - sizeof header < header.bytes) {
      break;
    }
    const std::string bytes = seat.received.substr(at + sizeof header, header.bytes);
    at += sizeof header + header.bytes;
    if (header.frame == Frame::line) {
      seat.lines.push_back(bytes);
    } else if (header.frame == Frame::result) {
      seat.outcome.result += bytes;
    } else {
      End end{};
      std::memcpy(&end, bytes.data(), sizeof end);
      seat.outcome.ended = Clock::time_point(Clock::duration(end.nanoseconds));
      seat.outcome.done = header.frame == Frame::done;
      if (header.frame == Frame::fault) {
        const std::string text = bytes.substr(sizeof end);
        seat.outcome.culprit = static_cast<int>(end.culprit);
        seat.outcome.kind = text.substr(0, text.find('\n'));
        seat.outcome.message = text.substr(text.find('\n') + 1);
      }
    }
  }
  seat.received.erase(0, at);
}

void Members::finish(Seat& seat) {
  ::close(std::exchange(seat.socket, -1));
  if (as_ == As::threads) {
    seat.thread.join();
    return;
  }
  int status = 0;
  while (::waitpid(seat.outcome.pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status)) {
    seat.outcome.exit_code = WEXITSTATUS(status);
  } else if (WIFSIGNALED(status)) {
    seat.outcome.signal = WTERMSIG(status);
  }
}

void Members::overdue(Seat& seat) {
  if (seat.socket < 0) {
    return;
  }
  if (as_ == As::threads) {
    std::fprintf(stderr, "rank %d, a thread, is overdue; nothing can end it but the end of this program\n",
                 seat.outcome.rank);
    std::abort();
  }
  ::kill(seat.outcome.pid, SIGKILL);
  finish(seat);
  seat.outcome.kind = "overdue";
  seat.outcome.message = "the member was still running when its time was over, and has been killed";
}

std::vector<Outcome> run_members(int count, As as, const Body& body, std::chrono::milliseconds limit) {
  Members members(count, as, body);
  return members.wait_all(limit);
}

}  // namespace sumpter::tests
