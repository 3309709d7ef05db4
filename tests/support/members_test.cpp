#include "tests/support/members.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <numeric>

#include "base/error.h"
#include "sumpter/exchange.h"

namespace sumpter::tests {
namespace {

class BothKinds : public ::testing::TestWithParam<As> {};
INSTANTIATE_TEST_SUITE_P(Members, BothKinds, ::testing::Values(As::threads, As::processes),
                         [](const auto& as) { return std::string(name_of(as.param)); });

TEST_P(BothKinds, ResultsComeBackByRankHoweverLong) {
  const auto outcomes = run_members(3, GetParam(), [](Member& member) {
    std::vector<int> values(100'000);
    std::iota(values.begin(), values.end(), member.rank());
    member.give(bytes_of(values));
  });
  for (int rank = 0; rank < 3; ++rank) {
    const Outcome& outcome = outcomes.at(static_cast<std::size_t>(rank));
    EXPECT_TRUE(outcome.done) << describe(outcome);
    EXPECT_EQ(outcome.rank, rank);
    const auto values = values_of<int>(outcome.result);
    ASSERT_EQ(values.size(), 100'000U);
    EXPECT_EQ(values.front(), rank);
    EXPECT_EQ(values.back(), 99'999 + rank);
  }
}

TEST_P(BothKinds, WhatABodyThrowsIsReportedAfterWhatItGave) {
  const auto outcomes = run_members(2, GetParam(), [](Member& member) {
    member.give("so far");
    if (member.rank() == 1) {
      throw TimeoutError("rank 0\nis late", 0);
    }
  });
  EXPECT_TRUE(outcomes[0].done);
  EXPECT_FALSE(outcomes[1].done);
  EXPECT_EQ(outcomes[1].kind, "TimeoutError");
  EXPECT_EQ(outcomes[1].message, "rank 0\nis late");
  EXPECT_EQ(outcomes[1].culprit, 0);
  EXPECT_EQ(outcomes[1].result, "so far");
  if (GetParam() == As::processes) {
    EXPECT_EQ(outcomes[0].exit_code, 0);
    EXPECT_EQ(outcomes[1].exit_code, 1);
  }
}

TEST_P(BothKinds, LinesTravelBothWays) {
  Members members(2, GetParam(), [](Member& member) {
    member.say("ready");
    member.say("heard " + member.hear());
  });
  for (int rank : {1, 0}) {
    EXPECT_EQ(members.hear(rank), "ready");
    members.tell(rank, "a line");
    EXPECT_EQ(members.hear(rank), "heard a line");
    EXPECT_EQ(members.hear(rank), std::nullopt);
    EXPECT_TRUE(members.wait(rank).done);
  }
}

TEST(Processes, AreKilledStoppedAndContinued) {
  Members members(2, As::processes, [](Member& member) {
    member.say("ready");
    member.hear();
  });
  EXPECT_EQ(members.hear(0), "ready");
  EXPECT_EQ(members.hear(1), "ready");
  EXPECT_NE(members.pid(0), members.pid(1));
  members.send(0, SIGKILL);
  EXPECT_EQ(members.wait(0).signal, SIGKILL);
  members.send(1, SIGSTOP);
  members.tell(1, "end");
  members.send(1, SIGCONT);
  EXPECT_TRUE(members.wait(1).done);
}

TEST(Processes, OneThatIsOverdueIsKilled) {
  const auto outcomes = run_members(
      1, As::processes, [](Member& member) { member.hear(); }, std::chrono::milliseconds(50));
  EXPECT_EQ(outcomes[0].kind, "overdue");
  EXPECT_EQ(outcomes[0].signal, SIGKILL);
}

TEST(Processes, AreSignalledAfterAWhile) {
  const auto outcomes = run_members(1, As::processes, [](Member& member) {
    signal_myself_after(SIGKILL, std::chrono::microseconds(100));
    member.hear();
  });
  EXPECT_EQ(outcomes[0].signal, SIGKILL);
  EXPECT_EQ(outcomes[0].kind, "");
}

TEST(Processes, ThatDieWithoutAWordAreSeen) {
  const auto outcomes = run_members(1, As::processes, [](Member&) { ::_exit(7); });
  EXPECT_FALSE(outcomes[0].done);
  EXPECT_EQ(outcomes[0].kind, "");
  EXPECT_EQ(outcomes[0].exit_code, 7);
}

}  // namespace
}  // namespace sumpter::tests
