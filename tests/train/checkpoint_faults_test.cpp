// Disks that are full and runs that are killed while they write a checkpoint.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <random>
#include <sstream>

#include "sumpter/error.h"
#include "tests/support/members.h"
#include "tests/support/temporary_directory.h"
#include "tests/train/checkpoints.h"

namespace sumpter {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using tests::expect_all_whole;
using tests::MadeUp;
using tests::Member;
using tests::message_of;
using tests::names_in;
namespace fs = std::filesystem;

class CheckpointFaults : public testing::Test {
 protected:
  fs::path directory() const { return temporary_.path() / "checkpoints"; }

  // The message of a write of step 3 by a process whose files may have `most` bytes.
  std::string refusal_below(rlim_t most, const MadeUp& made_up) const {
    const auto outcomes = tests::run_members(1, tests::As::processes, [&](Member& member) {
      CheckpointFolder folder(directory(), 2);
      signal(SIGXFSZ, SIG_IGN);
      const rlimit limit = {most, most};
      if (setrlimit(RLIMIT_FSIZE, &limit) != 0) throw std::runtime_error("no limit for files");
      member.give(message_of<SystemError>([&] { folder.write(made_up.content(), true); }));
    });
    EXPECT_TRUE(outcomes[0].done) << tests::describe(outcomes[0]);
    return outcomes[0].result;
  }

  const tests::TemporaryDirectory temporary_;
};

TEST_F(CheckpointFaults, FullDiskLeavesTheOthers) {
  {
    CheckpointFolder folder(directory(), 2);
    folder.write(MadeUp(1).content(), true);
    folder.write(MadeUp(2).content(), false);
  }
  // Weights of 40,004 bytes, state of 80,003.
  const MadeUp large(3, 0, 10'000);
  const std::string needed = "cannot write the checkpoint of step 3, whose arrays have 120007 bytes: ";
  EXPECT_THAT(refusal_below(20'000, large),
              AllOf(HasSubstr(directory().string() + ": " + needed), HasSubstr("weights.safetensors"),
                    HasSubstr("cannot write its 40"), HasSubstr("bytes: File too large")));
  EXPECT_THAT(refusal_below(60'000, large), AllOf(HasSubstr(needed), HasSubstr("state.safetensors"),
                                                  HasSubstr("cannot write its 80"), HasSubstr("File too large")));
  EXPECT_THAT(names_in(directory()), ElementsAre("best", "latest", "step-000000001", "step-000000002"));
  EXPECT_THAT(expect_all_whole(directory()), ElementsAre(1, 2));
  EXPECT_EQ(fs::read_symlink(directory() / "latest"), "step-000000002");
  EXPECT_EQ(fs::read_symlink(directory() / "best"), "step-000000001");
  EXPECT_EQ(refusal_below(200'000, large), "");
  EXPECT_EQ(CheckpointFolder(directory(), 2).newest().value().step, 3U);
}

TEST_F(CheckpointFaults, WhatIsInTheWayIsNamed) {
  CheckpointFolder folder(directory(), 2);
  folder.write(MadeUp(1).content(), false);
  fs::create_directories(directory() / ".writing-step-000000002" / "x");
  EXPECT_THAT(message_of<SystemError>([&] { folder.write(MadeUp(2).content(), false); }), HasSubstr("File exists"));
  folder.write(MadeUp(2).content(), false);
  fs::remove(directory() / "best");
  fs::create_directories(directory() / "best" / "x");
  EXPECT_THAT(message_of<SystemError>([&] { folder.write(MadeUp(3).content(), true); }), HasSubstr("best"));
  fs::remove_all(directory() / "best");
  EXPECT_EQ(folder.newest().value().step, 3U) << "whole all the same";
  EXPECT_THAT(expect_all_whole(directory()), ElementsAre(1, 2, 3));
}

// Each round goes on in the directory that the killed ones left, and writes the newest step once more first.
TEST_F(CheckpointFaults, KilledAtAnyMoment) {
  constexpr int kRounds = 30;
  std::mt19937_64 random(7);
  std::uint64_t newest = 0;
  for (int round = 0; round < kRounds; ++round) {
    tests::Members members(1, tests::As::processes, [&](Member& member) {
      CheckpointFolder folder(directory(), 2);
      member.hear();
      for (std::uint64_t step = newest;; ++step) {
        folder.write(MadeUp(step, round).content(), step % 5 == 0);
        member.give(std::to_string(step) + " ");
      }
    });
    members.tell(0, "begin");
    usleep(static_cast<useconds_t>(random() % 200'000));
    members.send(0, SIGKILL);
    const tests::Outcome outcome = members.wait(0);
    EXPECT_EQ(outcome.signal, SIGKILL) << tests::describe(outcome);
    std::uint64_t reported = newest;
    std::istringstream steps(outcome.result);
    while (steps >> reported) {
    }
    if (outcome.result.empty()) reported = newest;

    expect_all_whole(directory());
    const std::optional<LoadedCheckpoint> loaded = CheckpointFolder(directory(), 2).newest();
    if (!loaded) {
      EXPECT_TRUE(newest == 0 && outcome.result.empty()) << "round " << round;
      continue;
    }
    EXPECT_TRUE(loaded->step == reported || loaded->step == reported + 1)
        << "round " << round << " reported " << reported << " and left " << loaded->step;
    MadeUp(loaded->step, loaded->progress.at("version")).expect_in(*loaded);
    newest = loaded->step;
  }
  EXPECT_GT(newest, 0U);
}

enum class End { killed, finished, untraceable, failed };

// Runs the body in a process that is killed once it has made so many system calls.
End run_killed_after(int calls, const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(77);
    ::raise(SIGSTOP);
    try {
      body();
    } catch (...) {
      _exit(1);
    }
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  // Each call stops it twice, before and after.
  for (int stop = 0; stop < 2 * calls && WIFSTOPPED(status); ++stop) {
    ptrace(PTRACE_SYSCALL, child, nullptr, nullptr);
    waitpid(child, &status, 0);
  }
  if (WIFEXITED(status))
    return WEXITSTATUS(status) == 0 ? End::finished : WEXITSTATUS(status) == 77 ? End::untraceable : End::failed;
  kill(child, SIGKILL);
  while (waitpid(child, &status, 0) == child && WIFSTOPPED(status)) {
  }
  return End::killed;
}

// Steps 1 (the best), 2 and 3 are there, 2 are kept; then step `step` is written and the process killed after its first
// system call, its second, and so on until it ends before. Returns how often the new one was there.
class KilledAfterEachCall : public CheckpointFaults, public testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Steps, KilledAfterEachCall, testing::Values(3, 4), testing::PrintToStringParamName());

TEST_P(KilledAfterEachCall, LeavesAllWhole) {
  const int step = GetParam();
  const fs::path before = temporary_.path() / "before";
  {
    CheckpointFolder folder(before, 3);
    for (int number = 1; number <= 3; ++number) folder.write(MadeUp(number).content(), number == 1);
  }
  bool is_new = false;
  for (int calls = 0;; ++calls) {
    SCOPED_TRACE(calls);
    fs::copy(before, directory(), fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    const End end =
        run_killed_after(calls, [&] { CheckpointFolder(directory(), 2).write(MadeUp(step, 1).content(), false); });
    if (end == End::untraceable) GTEST_SKIP() << "processes may not be traced here";
    ASSERT_NE(end, End::failed);
    const std::set<std::uint64_t> steps = expect_all_whole(directory());
    EXPECT_TRUE(steps.contains(1) && steps.contains(3));
    const LoadedCheckpoint newest = CheckpointFolder(directory(), 2).newest().value();
    const bool was_new = std::exchange(is_new, newest.progress.at("version") == 1);
    EXPECT_EQ(newest.step, is_new ? step : 3U);
    EXPECT_TRUE(is_new || !was_new) << "the new one was there after fewer calls";
    for (const std::string& name : names_in(directory())) EXPECT_FALSE(name.starts_with("."));
    fs::remove_all(directory());
    if (end == End::finished) {
      EXPECT_TRUE(is_new);
      EXPECT_GT(calls, 20);
      break;
    }
  }
}

}  // namespace
}  // namespace sumpter
