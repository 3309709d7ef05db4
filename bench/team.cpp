#include "bench/team.h"

#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"
#include "bench/harness.h"

namespace sumpter::bench {
namespace {

constexpr int kMostMembers = 64;
constexpr int kStop = -1;

// std::atomic's own wait does not reach across processes.
void sleep_while(std::atomic<std::uint32_t>& word, std::uint32_t value, const timespec* limit = nullptr) {
  syscall(SYS_futex, &word, FUTEX_WAIT, value, limit, nullptr, 0);
}
void wake_all(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, kMostMembers, nullptr, nullptr, 0);
}

void pause_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

struct alignas(64) MemberSlot {
  std::atomic<std::uint32_t> finished{0};  // rounds that this member has done with, well or not
  struct Run {
    Clock::time_point start, end;
  };
  std::array<Run, kMaximumRepeats> runs{};
  std::array<char, 1000> fault{};  // what it threw; written before `faulty` of the team is set
};

}  // namespace

struct Team::Shared {
  alignas(64) std::atomic<std::uint32_t> round{0};  // moves on to start one
  alignas(64) std::atomic<std::uint32_t> finished{0};
  alignas(64) std::atomic<std::uint32_t> at_line{0};
  alignas(64) std::atomic<std::uint32_t> line{0};  // with what is read beside it, and seldom written
  std::atomic<int> faulty{-1};                     // the first rank that failed
  std::atomic<int> job{0};
  std::atomic<int> repeats{0};
  int members = 0;
  int spins = 0;  // at the line before giving way: few where members share cores
  std::array<MemberSlot, kMostMembers> slots;

  void wait_at_line() {
    const std::uint32_t seen = line.load(std::memory_order_relaxed);
    if (at_line.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<std::uint32_t>(members)) {
      at_line.store(0, std::memory_order_relaxed);
      line.store(seen + 1, std::memory_order_release);
      return;
    }
    for (int waited = 0; line.load(std::memory_order_acquire) == seen; ++waited) {
      if (faulty.load(std::memory_order_relaxed) >= 0) raise<Error>("another member failed");
      if (waited < spins) {
        pause_core();
      } else {
        sched_yield();
      }
    }
  }

  void do_round(TeamMember& member, int rank, int this_job) {
    const int times = repeats.load(std::memory_order_relaxed);
    for (int i = 0; i < times; ++i) {
      member.prepare(this_job);
      wait_at_line();
      MemberSlot::Run& run = slots[static_cast<std::size_t>(rank)].runs[static_cast<std::size_t>(i)];
      run.start = Clock::now();
      member.run(this_job);
      run.end = Clock::now();
      wait_at_line();
    }
  }

  void finish(int rank) {
    slots[static_cast<std::size_t>(rank)].finished.fetch_add(1, std::memory_order_relaxed);
    finished.fetch_add(1, std::memory_order_release);
    wake_all(finished);
  }

  void report(int rank, const std::string& message) {
    int none = -1;
    auto& fault = slots[static_cast<std::size_t>(rank)].fault;
    const std::size_t length = std::min(message.size(), fault.size() - 1);
    std::memcpy(fault.data(), message.data(), length);
    fault[length] = '\0';
    faulty.compare_exchange_strong(none, rank, std::memory_order_release, std::memory_order_relaxed);
  }
};

Team::Team(Kind kind, int members, const MakeMember& make_member)
    : shared_(nullptr, [](Shared* shared) {
        shared->~Shared();
        munmap(shared, sizeof(Shared));
      }) {
  if (members < 1 || members > kMostMembers) {
    raise<RequestError>("a team of {} members was asked for; it can have 1 to {}", members, kMostMembers);
  }
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    raise<SystemError>("no {} bytes for a team of {}: {}", sizeof(Shared), members, errno_text());
  shared_.reset(new (memory) Shared);
  shared_->members = members;
  shared_->spins = members <= usable_cores() ? 100'000 : 50;
  try {
    start(kind, make_member);
    await_members();
  } catch (...) {
    stop();
    throw;
  }
}

Team::~Team() { stop(); }

void Team::start(Kind kind, const MakeMember& make_member) {
  const pid_t parent = getpid();
  for (int rank = 0; rank < shared_->members; ++rank) {
    if (kind == Kind::threads) {
      threads_.emplace_back([this, rank, make_member] { serve(*shared_, rank, make_member); });
      continue;
    }
    const pid_t pid = fork();
    if (pid < 0) raise<SystemError>("member {} of {} could not be forked: {}", rank, shared_->members, errno_text());
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      serve(*shared_, rank, make_member);
      _exit(0);
    }
    processes_.push_back(pid);
  }
}

void Team::serve(Shared& shared, int rank, const MakeMember& make_member) {
  std::unique_ptr<TeamMember> member;
  try {
    member = make_member(rank);
  } catch (...) {
    shared.report(rank, describe(std::current_exception()));
  }
  shared.finish(rank);
  for (std::uint32_t seen = 0;; ++seen) {
    while (shared.round.load(std::memory_order_acquire) == seen) sleep_while(shared.round, seen);
    const int job = shared.job.load(std::memory_order_relaxed);
    if (job == kStop) return;
    try {
      shared.do_round(*member, rank, job);
    } catch (...) {
      shared.report(rank, describe(std::current_exception()));
      member.reset();  // others may be waiting for it in the middle of their run
    }
    shared.finish(rank);
  }
}

// Returns when every member has finished the round (the making of the members counts as one) or one has failed or died;
// members that stand at the line then leave it by themselves.
void Team::await_members() {
  const auto expected =
      (shared_->round.load(std::memory_order_relaxed) + 1) * static_cast<std::uint32_t>(shared_->members);
  constexpr timespec kGlance{.tv_sec = 0, .tv_nsec = 100'000'000};
  for (std::uint32_t seen = 0; (seen = shared_->finished.load(std::memory_order_acquire)) != expected;) {
    if (shared_->faulty.load(std::memory_order_acquire) >= 0) break;
    sleep_while(shared_->finished, seen, &kGlance);
    for (std::size_t rank = 0; rank < processes_.size(); ++rank) {
      int status = 0;
      if (processes_[rank] > 0 && waitpid(processes_[rank], &status, WNOHANG) == processes_[rank]) {
        processes_[rank] = -1;
        shared_->report(static_cast<int>(rank), WIFSIGNALED(status)
                                                    ? fmt::format("was killed by signal {}", WTERMSIG(status))
                                                    : fmt::format("exited with {}", WEXITSTATUS(status)));
      }
    }
  }
  const int faulty = shared_->faulty.load(std::memory_order_acquire);
  if (faulty >= 0) raise<Error>("member {}: {}", faulty, shared_->slots[static_cast<std::size_t>(faulty)].fault.data());
}

double Team::round(int job, int repeats) {
  if (repeats < 1 || repeats > kMaximumRepeats) {
    raise<RequestError>("{} repeats were asked for; a round has 1 to {}", repeats, kMaximumRepeats);
  }
  if (shared_->faulty.load(std::memory_order_acquire) >= 0) await_members();
  shared_->job.store(job, std::memory_order_relaxed);
  shared_->repeats.store(repeats, std::memory_order_relaxed);
  shared_->round.fetch_add(1, std::memory_order_release);
  wake_all(shared_->round);
  await_members();

  double total = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(repeats); ++i) {
    auto start = Clock::time_point::max();
    auto end = Clock::time_point::min();
    for (int rank = 0; rank < shared_->members; ++rank) {
      const MemberSlot::Run& run = shared_->slots[static_cast<std::size_t>(rank)].runs[i];
      start = std::min(start, run.start);
      end = std::max(end, run.end);
    }
    total += seconds_between(start, end);
  }
  return total;
}

void Team::stop() {
  shared_->job.store(kStop, std::memory_order_relaxed);
  shared_->round.fetch_add(1, std::memory_order_release);
  wake_all(shared_->round);
  for (std::thread& thread : threads_) thread.join();
  const auto start = Clock::now();
  for (const pid_t pid : processes_) {
    while (pid > 0 && waitpid(pid, nullptr, WNOHANG) == 0) {
      if (seconds_since(start) > 5) kill(pid, SIGKILL);
      usleep(1000);
    }
  }
}

}  // namespace sumpter::bench
