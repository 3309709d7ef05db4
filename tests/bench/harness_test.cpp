// Statistics, turn-taking and reports, with time as an argument.
#include "bench/harness.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "bench/ping.h"
#include "sumpter/error.h"

namespace sumpter::bench {
namespace {

using testing::DoubleEq;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

TEST(Quantile, InterpolatesBetweenNeighboursInAnyOrder) {
  EXPECT_EQ(quantile({4, 1, 2}, 0.5), 2);
  EXPECT_EQ(quantile({4, 1, 2, 3}, 0.5), 2.5);
  EXPECT_EQ(quantile({10, 20, 30, 40, 50}, 0.25), 20);
  EXPECT_EQ(quantile({10, 20, 30, 40, 50}, 0.75), 40);
  EXPECT_EQ(quantile({7}, 0.75), 7);
  EXPECT_EQ(median({3, 1}), 2);
}

TEST(RelativeSpread, IsHalfTheInterquartileRangeOverTheMedian) {
  EXPECT_DOUBLE_EQ(relative_spread({10, 20, 30, 40, 50}), 10.0 / 30.0);
  EXPECT_EQ(relative_spread({5, 5, 5}), 0);
  EXPECT_EQ(relative_spread({0, 0}), 0);
}

// A machine whose time passes only when a contender works.
class Compare : public testing::Test {
 protected:
  Contender working(const std::string& name, double seconds) {
    return {.name = name, .run = [this, name, seconds] {
              log_.push_back(name);
              time_ += seconds * slowness_;
            }};
  }
  CompareOptions options() {
    return {.seconds = 0, .warm_up = 0, .minimum_rounds = 4, .turn_seconds = 0.001, .now = [this] { return time_; }};
  }

  double time_ = 100;
  double slowness_ = 1;
  std::vector<std::string> log_;
};

TEST_F(Compare, TakesTurnsInChangingOrder) {
  compare({working("a", 1), working("b", 2), working("c", 4)}, options());
  EXPECT_THAT(log_, ElementsAre("a", "b", "c", "c", "b", "a", "b", "c", "a", "a", "c", "b"));
}

TEST_F(Compare, GivesMediansAndRatios) {
  Contender b = working("b", 2);
  b.bytes = 4096;
  b.against = {"a", "c"};
  const auto figures = compare({working("a", 1), b, working("c", 4)}, options());
  ASSERT_EQ(figures.size(), 4U);
  EXPECT_EQ(figures[0].name, "a");
  EXPECT_EQ(figures[0].seconds, 1);
  EXPECT_EQ(figures[0].against, "");
  EXPECT_FALSE(figures[0].ratio.has_value());
  EXPECT_FALSE(figures[0].ping.has_value());
  EXPECT_EQ(figures[1].name, "b");
  EXPECT_EQ(figures[1].bytes, 4096U);
  EXPECT_EQ(figures[1].seconds, 2);
  EXPECT_EQ(figures[1].against, "a");
  EXPECT_EQ(figures[1].ratio, 2);
  EXPECT_EQ(figures[2].name, "b");
  EXPECT_EQ(figures[2].against, "c");
  EXPECT_EQ(figures[2].ratio, 0.5);
  EXPECT_EQ(figures[3].name, "c");
  EXPECT_EQ(figures[3].rounds, 4);
}

TEST_F(Compare, PairsRatiosByRoundSoThatADriftingMachineDoesNotShow) {
  // Each round is ten times as slow as the one before.
  const auto slowing = [](const std::string& name, double seconds) {
    return Contender{.name = name, .round = [seconds](int repeats) mutable { return repeats * (seconds *= 10); }};
  };
  Contender b = slowing("b", 3);
  b.against = {"a"};
  CompareOptions chosen = options();
  chosen.turn_seconds = 0;
  const auto figures = compare({slowing("a", 1), b}, chosen);
  EXPECT_DOUBLE_EQ(figures[1].ratio.value(), 3);
  EXPECT_GT(figures[1].spread, 0.5);
}

TEST_F(Compare, RepeatsShortRunsWithinATurnAndDropsTheWarmUp) {
  std::vector<int> repeats;
  double seconds = 1.0;  // the first, cold run
  Contender shorter{.name = "short", .round = [&](int times) {
                      repeats.push_back(times);
                      const double taken = seconds * times;
                      seconds = 0.0001;
                      return taken;
                    }};
  CompareOptions chosen = options();
  chosen.warm_up = 2;
  const auto figures = compare({shorter}, chosen);
  EXPECT_THAT(repeats, ElementsAre(1, 1, 10, 10, 10, 10));
  EXPECT_DOUBLE_EQ(figures[0].seconds, 0.0001);
}

TEST_F(Compare, LeavesPreparationsOut) {
  Contender a = working("a", 0.5);
  a.prepare = [this] {
    log_.push_back("prepare");
    time_ += 1000;
  };
  const auto figures = compare({a}, options());
  EXPECT_EQ(figures[0].seconds, 0.5);
  EXPECT_THAT(log_, ElementsAre("prepare", "a", "prepare", "a", "prepare", "a", "prepare", "a"));
}

TEST_F(Compare, StopsWhenItsTimeIsUpButNotBelowTheMinimum) {
  CompareOptions chosen = options();
  chosen.seconds = 10.5;
  EXPECT_EQ(compare({working("a", 1)}, chosen)[0].rounds, 11);
  chosen.maximum_rounds = 6;
  EXPECT_EQ(compare({working("a", 1)}, chosen)[0].rounds, 6);
  EXPECT_EQ(compare({working("a", 100)}, chosen)[0].rounds, 4);
}

TEST_F(Compare, MeasuresAPingBeforeEveryTurn) {
  CompareOptions chosen = options();
  double ping = 0;
  chosen.ping = [&ping] { return ping += 1; };
  const auto figures = compare({working("a", 1), working("b", 1)}, chosen);
  EXPECT_EQ(ping, 8);
  EXPECT_EQ(figures[0].ping, median({1, 4, 6, 7}));
  EXPECT_EQ(figures[1].ping, median({2, 3, 5, 8}));
}

TEST_F(Compare, RefusesWhatItCannotCompare) {
  EXPECT_THROW(compare({}, options()), RequestError);
  EXPECT_THROW(compare({working("a", 1), working("a", 2)}, options()), RequestError);
  EXPECT_THROW(compare({{.name = "idle"}}, options()), RequestError);
  Contender stray = working("a", 1);
  stray.against = {"nobody"};
  EXPECT_THROW(compare({stray}, options()), RequestError);
  CompareOptions none = options();
  none.minimum_rounds = 0;
  EXPECT_THROW(compare({working("a", 1)}, none), RequestError);
  EXPECT_TRUE(log_.empty());
}

TEST(Report, PrintsOneObjectALineWithExactlyTheAgreedKeys) {
  std::ostringstream out;
  Report report(out, true);
  report.add({{.name = "in-place",
               .bytes = 4096,
               .seconds = 0.5,
               .spread = 0.25,
               .against = "limit",
               .ratio = 1.5,
               .ping = 0.125},
              {.name = "limit", .seconds = 0.25}});
  EXPECT_EQ(out.str(),
            R"({"name":"in-place","bytes":4096,"seconds":0.5,"spread":0.25,"against":"limit","ratio":1.5,"ping":0.125})"
            "\n"
            R"({"name":"limit","bytes":null,"seconds":0.25,"spread":0.0,"against":null,"ratio":null,"ping":null})"
            "\n");
}

TEST(Report, PrintsATableWithOneHeadingForPeople) {
  std::ostringstream out;
  Report report(out, false, {{.title = "busbw", .text = [](const Figure&) { return std::string("7 GB/s"); }}});
  report.add(
      {{.name = "in-place", .bytes = 4096, .seconds = 1.5e-6, .spread = 0.25, .against = "limit", .ratio = 1.5}});
  report.add({{.name = "limit", .seconds = 1e-6}});
  std::istringstream lines(out.str());
  std::string heading;
  std::string first;
  std::string second;
  std::string rest;
  std::getline(lines, heading);
  std::getline(lines, first);
  std::getline(lines, second);
  EXPECT_FALSE(std::getline(lines, rest));
  EXPECT_THAT(heading, StartsWith("name"));
  EXPECT_THAT(heading, HasSubstr("busbw"));
  EXPECT_THAT(first, testing::AllOf(StartsWith("in-place"), HasSubstr("4.00 KiB"), HasSubstr("25.0 %"),
                                    HasSubstr("1.500"), HasSubstr("7 GB/s")));
  EXPECT_THAT(second, StartsWith("limit"));
}

TEST(CacheLinePing, AnswersAgainAndAgain) {
  CacheLinePing ping;
  for (int i = 0; i < 3; ++i) EXPECT_GT(ping.measure(10), 0);
}

}  // namespace
}  // namespace sumpter::bench
