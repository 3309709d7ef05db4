#include "bench/peer.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <utility>

#include "base/clock.h"
#include "base/error.h"

namespace sumpter::bench {
namespace {

std::string option_part(const std::string& option, bool command) {
  const std::size_t sign = option.find('=');
  if (sign == 0 || sign == std::string::npos || sign + 1 == option.size()) {
    raise<RequestError>("a peer is given as NAME=COMMAND, not as '{}'", option);
  }
  return command ? option.substr(sign + 1) : option.substr(0, sign);
}

// The program, in a process group of its own so that it can be ended with all that it starts.
int spawn_shell(const std::string& name, const std::string& command, int socket) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_adddup2(&actions, socket, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, socket, STDOUT_FILENO);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&attributes, 0);

  std::string shell = "sh";
  std::string option = "-c";
  std::string line = "exec " + command;
  const std::array<char*, 4> words{shell.data(), option.data(), line.data(), nullptr};
  pid_t process = -1;
  const int fault = posix_spawn(&process, "/bin/sh", &actions, &attributes, words.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (fault != 0) raise<SystemError>("peer {}: '{}' could not be started: {}", name, command, errno_text(fault));
  return process;
}

}  // namespace

Peer::Peer(const std::string& option) : Peer(option_part(option, false), option_part(option, true)) {}

Peer::Peer(std::string name, const std::string& command, std::chrono::seconds time_limit)
    : name_(std::move(name)), time_limit_(time_limit) {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    raise<SystemError>("peer {}: no socket to talk over: {}", name_, errno_text());
  }
  socket_ = ends[0];
  try {
    process_ = spawn_shell(name_, command, ends[1]);
    close(std::exchange(ends[1], -1));
    if (const std::string line = read_line(); line != "ready") {
      raise<Error>("peer {}: '{}' said '{}' instead of 'ready'", name_, command, line);
    }
  } catch (...) {
    if (ends[1] >= 0) close(ends[1]);
    stop();
    throw;
  }
}

Peer::~Peer() { stop(); }

double Peer::round(const std::string& request, int repeats) {
  const std::string line = fmt::format("{} {}\n", request, repeats);
  if (send(socket_, line.data(), line.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(line.size())) {
    raise<Error>("peer {} does not listen any more: {}", name_, errno_text());
  }
  const std::string answer = read_line();
  double seconds = 0;
  const auto [end, fault] = std::from_chars(answer.data(), answer.data() + answer.size(), seconds);
  if (fault != std::errc{} || end != answer.data() + answer.size() || !(seconds >= 0)) {
    raise<Error>("peer {}, told '{} {}', answered '{}'", name_, request, repeats, answer);
  }
  return seconds;
}

std::string Peer::read_line() {
  const auto start = Clock::now();
  std::size_t end = 0;
  while ((end = unread_.find('\n')) == std::string::npos) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(time_limit_ - (Clock::now() - start)).count();
    pollfd wait{.fd = socket_, .events = POLLIN, .revents = 0};
    if (left <= 0 || poll(&wait, 1, static_cast<int>(left)) == 0) {
      raise<Error>("peer {} has said nothing for {} s", name_, time_limit_.count());
    }
    std::array<char, 4096> buffer{};
    const ssize_t got = recv(socket_, buffer.data(), buffer.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) raise<Error>("peer {} ended without an answer; what it said stands above", name_);
    unread_.append(buffer.data(), static_cast<std::size_t>(got));
  }
  std::string line = unread_.substr(0, end);
  unread_.erase(0, end + 1);
  return line;
}

void Peer::stop() {
  if (socket_ >= 0) close(socket_);
  if (process_ < 0) return;
  const auto start = Clock::now();
  while (waitpid(process_, nullptr, WNOHANG) == 0) {
    if (seconds_since(start) > 5) kill(-process_, SIGKILL);
    usleep(2000);
  }
}

std::string python_peer(const std::string& script, const std::string& arguments, std::string python) {
  const std::filesystem::path root = SUMPTER_SOURCE_DIR;
  if (std::ifstream recorded(root / "build" / "python"); python.empty() && !std::getline(recorded, python)) {
    raise<RequestError>("{} needs a Python with torch, and {} names none: run tools/setup", script,
                        (root / "build" / "python").string());
  }
  return fmt::format("'{}' '{}' {}", python, (root / "bench" / "peers" / script).string(), arguments);
}

}  // namespace sumpter::bench
