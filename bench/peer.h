// A peer: another program that stays alive and does a round of its own whenever it is told to, so that it takes turns
// with ours. It talks over its standard input and output, a line each:
//   it   ready
//   we   REQUEST REPEATS     do what REQUEST says so often, preparations not timed
//   it   SECONDS             of all repeats together, each from the first rank's start to the last one's end; or: error
//   TEXT
// and it ends when its input does.
#pragma once

#include <chrono>
#include <functional>
#include <string>

namespace sumpter::bench {

class Peer {
 public:
  // Starts `command` by the shell and waits until it is ready. Its standard error is ours. Throws SystemError when it
  // cannot be started, Error when it ends, complains or is silent for `time_limit`; messages name the peer.
  Peer(std::string name, const std::string& command, std::chrono::seconds time_limit = std::chrono::seconds{120});
  // As people write it in an option: NAME=COMMAND. Throws RequestError when it is not of that form.
  explicit Peer(const std::string& option);
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;
  ~Peer();  // closes its input; after five seconds it is killed

  const std::string& name() const { return name_; }

  // Returns the seconds of `repeats` times what `request` says. Blocks; throws as the constructor does.
  double round(const std::string& request, int repeats);

  // round() of one request, as a Contender wants it. The peer must outlive it.
  std::function<double(int)> job(const std::string& request) {
    return [this, request](int repeats) { return round(request, repeats); };
  }

 private:
  std::string read_line();
  void stop();

  std::string name_;
  std::chrono::seconds time_limit_;
  int process_ = -1;
  int socket_ = -1;  // both directions
  std::string unread_;
};

// The command line that runs a program of bench/peers with this Python, or where it is empty with the one that
// tools/setup has recorded; `arguments` follow as they are. Throws RequestError when none is recorded.
std::string python_peer(const std::string& script, const std::string& arguments, std::string python = {});

}  // namespace sumpter::bench
