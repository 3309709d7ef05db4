// Several members, threads or forked processes, that do the same round together: they sleep between rounds, and within
// one they leave a spinning start line at the same moment, so that waking up is not measured. A run takes as long as
// its slowest member.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace sumpter::bench {

// What a member does. It is made, used and destroyed in the member's own thread or process. `job` is one of the
// caller's numbers: it says which of several things, or which size, this round is about.
class TeamMember {
 public:
  TeamMember() = default;
  TeamMember(const TeamMember&) = delete;
  TeamMember& operator=(const TeamMember&) = delete;
  virtual ~TeamMember() = default;
  virtual void prepare(int job) = 0;  // not timed; no member runs while another prepares
  virtual void run(int job) = 0;
};

class Team {
 public:
  enum class Kind { threads, processes };
  using MakeMember = std::function<std::unique_ptr<TeamMember>(int rank)>;

  // Starts the members (1 to 64). Processes are forked here: make them before any thread of this process starts. Throws
  // RequestError for the number, SystemError when a process or memory cannot be had, Error with what make_member
  // throws.
  Team(Kind kind, int members, const MakeMember& make_member);
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;
  ~Team();  // ends the members; processes that do not end within five seconds are killed

  // Prepares and runs `repeats` times (1 to kMaximumRepeats); returns the seconds of all runs together. Blocks.
  // Throws Error with the rank and message of a member that threw or died; the team is then of no more use.
  double round(int job, int repeats);

  // round() of one job, as a Contender wants it. The team must outlive it.
  std::function<double(int)> job(int number) {
    return [this, number](int repeats) { return round(number, repeats); };
  }

 private:
  struct Shared;

  void start(Kind kind, const MakeMember& make_member);
  void await_members();
  void stop();
  static void serve(Shared& shared, int rank, const MakeMember& make_member);

  std::unique_ptr<Shared, void (*)(Shared*)> shared_;  // memory that forked members see too
  std::vector<std::thread> threads_;
  std::vector<int> processes_;
};

}  // namespace sumpter::bench
