// `sumpter bench exchange` from its options to its JSON lines, at sizes that say nothing about speed.
#include <gmock/gmock.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "bench/bench.h"
#include "sumpter/error.h"

namespace sumpter::bench {
namespace {

using testing::ElementsAre;

std::vector<nlohmann::ordered_json> run(std::vector<std::string> options) {
  CLI::App app;
  add_bench_exchange(app);
  options.insert(options.begin(), {"exchange", "--json", "--seconds", "0.001"});
  std::reverse(options.begin(), options.end());  // as CLI11 wants them
  testing::internal::CaptureStdout();
  try {
    app.parse(options);
  } catch (...) {
    testing::internal::GetCapturedStdout();
    throw;
  }
  std::istringstream lines(testing::internal::GetCapturedStdout());
  std::vector<nlohmann::ordered_json> figures;
  for (std::string line; std::getline(lines, line);) figures.push_back(nlohmann::ordered_json::parse(line));
  return figures;
}

std::vector<std::string> names(const std::vector<nlohmann::ordered_json>& figures) {
  std::vector<std::string> found;
  for (const auto& figure : figures) found.push_back(figure["name"]);
  return found;
}

TEST(BenchExchange, GivesThreeFiguresASizeAgainstTheLimit) {
  const auto figures = run({"--sizes", "4KiB,20KiB"});
  ASSERT_THAT(names(figures), ElementsAre("limit", "in-place", "staged", "limit", "in-place", "staged"));
  EXPECT_EQ(figures[1]["bytes"], 4096);
  EXPECT_EQ(figures[5]["bytes"], 20480);
  EXPECT_TRUE(figures[0]["ratio"].is_null());
  for (const std::size_t i : {1U, 2U, 4U, 5U}) {
    EXPECT_EQ(figures[i]["against"], "limit");
    EXPECT_GT(figures[i]["seconds"], 0.0);
    EXPECT_GT(figures[i]["ratio"], 0.0);
    EXPECT_GT(figures[i]["ping"], 0.0);
  }
}

TEST(BenchExchange, ProcessesReduceInPlaceToo) {
  EXPECT_THAT(names(run({"--sizes", "4KiB", "--processes", "--members", "3"})),
              ElementsAre("limit", "in-place", "staged"));
}

TEST(BenchExchange, PeersTakeTurnsAndGiveARatioToEachOfOurs) {
  const auto figures =
      run({"--sizes", "4KiB", "--peer", "slow=sh -c 'echo ready; while read bytes repeats; do echo $repeats; done'"});
  ASSERT_THAT(names(figures), ElementsAre("limit", "in-place", "staged", "slow", "slow"));
  EXPECT_EQ(figures[3]["seconds"], 1.0);
  EXPECT_EQ(figures[3]["against"], "in-place");
  EXPECT_EQ(figures[4]["against"], "staged");
}

TEST(BenchExchange, RefusesSizesThatAreNone) {
  EXPECT_THROW(run({"--sizes", "6"}), RequestError);
  EXPECT_THROW(run({"--sizes", "4KiB,much"}), RequestError);
  EXPECT_THROW(run({"--sizes", "0"}), RequestError);
  EXPECT_THROW(run({"--members", "0"}), CLI::ParseError);
}

}  // namespace
}  // namespace sumpter::bench
