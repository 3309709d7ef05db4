#include "exchange/connect.h"

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "exchange/watch.h"

namespace sumpter::exchange {
namespace {

constexpr const char* kKey = "sumpter/exchange";
constexpr std::chrono::milliseconds kRetry{5};

// What a member says first: its rank, and all that has to be the same everywhere.
struct Hello {
  std::int64_t rank = 0;
  std::int64_t protocol = kProtocol;
  std::int64_t members = 0, piece = 0, window = 0, time_limit = 0, watch = 0;
};

enum class Verdict : std::int32_t { welcome, mismatch, missing, wrong_rank };

// The answer. A welcome carries the arena's descriptor.
struct Answer {
  Verdict verdict = Verdict::welcome;
  std::int32_t culprit = -1;
  std::array<char, 504> text{};
};

Hello hello_of(int rank, const GroupOptions& options) {
  Hello hello;
  hello.rank = rank;
  hello.members = options.members;
  hello.piece = static_cast<std::int64_t>(options.piece);
  hello.window = options.window;
  hello.time_limit = options.time_limit.count();
  hello.watch = static_cast<std::int64_t>(options.watch);
  return hello;
}

// "piece is 4096 on rank 0 and 8192 on rank 2", or nothing.
std::optional<std::string> difference(const Hello& ours, const Hello& theirs) {
  const auto compare = [&](const char* name, std::int64_t Hello::*field) -> std::optional<std::string> {
    if (ours.*field == theirs.*field) return std::nullopt;
    return fmt::format("{} is {} on rank {} and {} on rank {}; all members need the same", name, ours.*field, ours.rank,
                       theirs.*field, theirs.rank);
  };
  const std::pair<const char*, std::int64_t Hello::*> fields[] = {{"the protocol's version", &Hello::protocol},
                                                                  {"members", &Hello::members},
                                                                  {"piece", &Hello::piece},
                                                                  {"window", &Hello::window},
                                                                  {"time_limit", &Hello::time_limit},
                                                                  {"watch", &Hello::watch}};
  for (const auto& [name, field] : fields) {
    if (auto text = compare(name, field)) return text;
  }
  return std::nullopt;
}

// Tells two machines apart, and two boots of one.
std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  file >> id;
  return id;
}

std::string unguessable_name() {
  std::array<unsigned char, 16> random{};
  if (getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size())) {
    raise<SystemError>("no random numbers can be had: {}", errno_text());
  }
  std::string name = "sumpter-";
  for (const unsigned char byte : random) name += fmt::format("{:02x}", byte);
  return name;
}

// The leading zero makes it a name without a file.
std::pair<sockaddr_un, socklen_t> abstract_address(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, sizeof(address.sun_path) - 1);
  return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())};
}

FileDescriptor make_socket() {
  FileDescriptor socket_file(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!socket_file.is_open()) raise<SystemError>("a socket to meet the other members cannot be had: {}", errno_text());
  return socket_file;
}

// Only processes of one user share memory.
bool same_user(int socket) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == getuid();
}

// False when the time is over first.
bool readable_before(int socket, Clock::time_point deadline) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd entry{.fd = socket, .events = POLLIN, .revents = 0};
    const int ready = poll(&entry, 1, static_cast<int>(std::clamp<std::int64_t>(left, 0, 1000)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) raise<SystemError>("waiting for another member failed: {}", errno_text());
    if (left <= 0) return false;
  }
}

// Sends the answer; the descriptor goes along when it is not negative. A peer that has gone does not matter here: its
// absence is noticed when the group joins.
void send_answer(int socket, const Answer& answer, int descriptor) {
  iovec data{.iov_base = const_cast<Answer*>(&answer), .iov_len = sizeof(answer)};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (descriptor >= 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
  }
  if (sendmsg(socket, &message, MSG_NOSIGNAL) < 0) log::warning("another member cannot be answered: {}", errno_text());
}

std::pair<Answer, FileDescriptor> receive_answer(int socket) {
  Answer answer;
  iovec data{.iov_base = &answer, .iov_len = sizeof(answer)};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != static_cast<ssize_t>(sizeof(answer))) {
    throw MemberLostError("rank 0 gave up before the group was complete", 0);
  }
  if ((message.msg_flags & MSG_CTRUNC) != 0) {
    raise<SystemError>("the arena's file could not be received from rank 0; this process may have too many files open");
  }
  FileDescriptor file;
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header != nullptr && header->cmsg_type == SCM_RIGHTS) {
    int descriptor = -1;
    std::memcpy(&descriptor, CMSG_DATA(header), sizeof(int));
    file = FileDescriptor(descriptor);
  }
  return {answer, std::move(file)};
}

[[noreturn]] void refuse(const Answer& answer) {
  if (answer.verdict == Verdict::mismatch) throw MismatchError(answer.text.data(), answer.culprit);
  if (answer.verdict == Verdict::missing) throw TimeoutError(answer.text.data(), answer.culprit);
  throw RequestError(answer.text.data());
}

// Rank 0: hears everybody before it answers anybody, so that all learn of a difference.
class Host {
 public:
  Host(const GroupOptions& options, Rendezvous& rendezvous)
      : options_(options),
        deadline_(Clock::now() + options.time_limit),
        peers_(static_cast<std::size_t>(options.members)) {
    const std::string name = unguessable_name();
    const auto [address, size] = abstract_address(name);
    if (bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
        listen(listener_.get(), kMaxMembers) != 0) {
      raise<SystemError>("rank 0 cannot listen for the other members: {}", errno_text());
    }
    rendezvous.set(kKey, fmt::format("{} {} {}", name, boot_id(), host_name()));
  }

  void welcome(int arena) {
    int missing = 0;
    while ((missing = missing_rank()) != 0 && accept_one()) {
    }
    if (missing != 0) {
      answer_.culprit = missing;
      say(answer_, Verdict::missing,
          fmt::format("rank 0 waited {:.1f} s for all members to connect; rank {} is missing",
                      Seconds(options_.time_limit).count(), missing));
    }
    for (const FileDescriptor& peer : peers_) {
      if (peer.is_open()) send_answer(peer.get(), answer_, answer_.verdict == Verdict::welcome ? arena : -1);
    }
    if (answer_.verdict != Verdict::welcome) refuse(answer_);
  }

 private:
  // 0 when nobody is missing.
  int missing_rank() const {
    for (std::size_t rank = 1; rank < peers_.size(); ++rank) {
      if (!peers_[rank].is_open()) return static_cast<int>(rank);
    }
    return 0;
  }

  // False when the time is over.
  bool accept_one() {
    if (!readable_before(listener_.get(), deadline_)) return false;
    FileDescriptor peer(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!peer.is_open()) return true;  // it has gone again
    if (!same_user(peer.get())) {
      log::warning("a process of another user tried to join the group and was sent away");
      return true;
    }
    if (!readable_before(peer.get(), deadline_)) return false;
    Hello hello;
    if (recv(peer.get(), &hello, sizeof(hello), 0) == static_cast<ssize_t>(sizeof(hello)))
      judge(hello, std::move(peer));
    return true;
  }

  void judge(const Hello& hello, FileDescriptor peer) {
    if (const auto text = difference(hello_of(0, options_), hello)) say(answer_, Verdict::mismatch, *text);
    if (hello.rank < 1 || hello.rank >= options_.members || peers_[static_cast<std::size_t>(hello.rank)].is_open()) {
      Answer no;
      say(no, Verdict::wrong_rank,
          fmt::format("rank {} cannot connect: ranks are 0 to {}, each once", hello.rank, options_.members - 1));
      send_answer(peer.get(), no, -1);
      return;
    }
    peers_[static_cast<std::size_t>(hello.rank)] = std::move(peer);
  }

  static void say(Answer& answer, Verdict verdict, const std::string& text) {
    if (answer.verdict != Verdict::welcome) return;
    answer.verdict = verdict;
    text.copy(answer.text.data(), answer.text.size() - 1);
  }

  const GroupOptions& options_;
  Clock::time_point deadline_;
  FileDescriptor listener_ = make_socket();
  std::vector<FileDescriptor> peers_;  // by rank
  Answer answer_;
};

std::string published_address(const GroupOptions& options, Rendezvous& rendezvous) {
  try {
    return rendezvous.get(kKey, options.time_limit);
  } catch (const TimeoutError& error) {
    throw TimeoutError(fmt::format("rank 0 is missing: {}", error.what()), 0);
  }
}

// The others: a rendezvous may still hold the address of an earlier group, so a refusal means to look again.
FileDescriptor find_host(const GroupOptions& options, Rendezvous& rendezvous, Clock::time_point deadline) {
  while (true) {
    std::istringstream value(published_address(options, rendezvous));
    std::string name, boot, host;
    value >> name >> boot >> host;
    if (boot != boot_id()) {
      raise<RequestError>("rank 0 runs on {}, this member on {}: an exchange is for one machine", host, host_name());
    }
    FileDescriptor socket_file = make_socket();
    const auto [address, size] = abstract_address(name);
    if (::connect(socket_file.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0) {
      if (!same_user(socket_file.get())) raise<RequestError>("rank 0 is a process of another user; members are of one");
      return socket_file;
    }
    if (Clock::now() >= deadline) {
      throw TimeoutError(fmt::format("rank 0 does not listen where it said: {}", errno_text()), 0);
    }
    std::this_thread::sleep_for(kRetry);
  }
}

}  // namespace

std::shared_ptr<GroupState> meet(int rank, const GroupOptions& options, Rendezvous& rendezvous) {
  check_options(options);
  if (rank < 0 || rank >= options.members) {
    raise<RequestError>("rank {} cannot connect to a group of {}; ranks are 0 to {}", rank, options.members,
                        options.members - 1);
  }
  if (rank == 0) {
    auto group = std::make_shared<GroupState>(options, Arena::create(options), Meeting::connected);
    if (options.members > 1) Host(options, rendezvous).welcome(group->arena().file());
    return group;
  }
  const auto deadline = Clock::now() + options.time_limit;
  const FileDescriptor host = find_host(options, rendezvous, deadline);
  const Hello hello = hello_of(rank, options);
  if (send(host.get(), &hello, sizeof(hello), MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof(hello))) {
    throw MemberLostError(fmt::format("rank 0 has gone: {}", errno_text()), 0);
  }
  // Rank 0 answers once everybody has come or its time is over: it is the one who knows who is missing.
  if (!readable_before(host.get(), deadline + std::chrono::seconds(5))) {
    throw TimeoutError("rank 0 did not answer within the time limit", 0);
  }
  auto [answer, file] = receive_answer(host.get());
  if (answer.verdict != Verdict::welcome) refuse(answer);
  return std::make_shared<GroupState>(options, Arena(std::move(file), options), Meeting::connected);
}

}  // namespace sumpter::exchange
