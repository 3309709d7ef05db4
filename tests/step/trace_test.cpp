// What a timeline shows of the steps.
#include "base/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "steps.h"

namespace sumpter::tests {
namespace {

using nlohmann::json;

std::vector<json> events_of(const Trace& trace) {
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / fmt::format("sumpter-step-trace-{}.json", getpid());
  trace.write(file);
  const json whole = json::parse(read_file(file));
  std::filesystem::remove(file);
  return whole.at("traceEvents");
}

std::vector<json> named(const std::vector<json>& events, const std::string& name) {
  std::vector<json> found;
  std::copy_if(events.begin(), events.end(), std::back_inserter(found),
               [&](const json& event) { return event.at("ph") == "X" && event.at("name") == name; });
  return found;
}

// Two replicas, three steps, three chunks.
std::vector<json> trace_of(Update update, double clip_norm, bool record = true) {
  Trace trace;
  trace.record(record);
  Case run;
  run.options.update = update;
  run.options.chunk = {ChunkRule::Kind::layers, 1};
  run.options.gradient_wire = WireFormat::bf16;
  run.options.optimizer.clip_norm = clip_norm;
  run.options.trace = &trace;
  for (const std::string& fault : execute(run).faults) EXPECT_EQ(fault, "");
  return events_of(trace);
}

TEST(StepTrace, ShowsTheFlightOfEachChunk) {
  for (const Update update : {Update::device, Update::host}) {
    const std::vector<json> events = trace_of(update, 0);
    EXPECT_EQ(std::count_if(events.begin(), events.end(),
                            [](const json& event) {
                              return event.at("name") == "thread_name" &&
                                     event.at("args").at("name") == "chunks of replica 1";
                            }) > 0,
              true);
    std::map<std::uint64_t, int> flights;  // by id
    for (const json& flight : named(events, "chunk")) {
      const std::uint64_t id = flight.at("args").at("id");
      ++flights[id];
      EXPECT_EQ(flight.at("args").at("chunk"), id % 3);
      const std::uint64_t bytes = std::vector<std::uint64_t>{4 * 5003, 4 * 30007, 4 * 1010}[id % 3];
      EXPECT_EQ(flight.at("args").at("bytes"), bytes);
    }
    ASSERT_EQ(flights.size(), 9U);
    for (std::uint64_t id = 0; id < 9; ++id) EXPECT_EQ(flights[id], 2) << "flight " << id;
  }
}

TEST(StepTrace, ShowsUpdatesAndRoundings) {
  // Sent and returned, by each replica; the host sends nothing back.
  EXPECT_EQ(named(trace_of(Update::device, 0), "round to wire").size(), 2U * 2 * 9);
  EXPECT_EQ(named(trace_of(Update::host, 0), "round to wire").size(), 2U * 9);
  // A chunk at a time, within the exchange's sums, or all at once.
  EXPECT_EQ(named(trace_of(Update::device, 0), "update").size(), 2U * 9);
  EXPECT_EQ(named(trace_of(Update::host, 0), "update").size(), 0U);
  EXPECT_EQ(named(trace_of(Update::device, 1), "update").size(), 2U * 3);
  EXPECT_EQ(named(trace_of(Update::host, 1), "update").size(), 2U * 3);
}

TEST(StepTrace, ShowsNothingWhileItDoesNotRecord) {
  const std::vector<json> events = trace_of(Update::device, 0, false);
  EXPECT_TRUE(named(events, "chunk").empty());
  EXPECT_TRUE(named(events, "update").empty());
}

}  // namespace
}  // namespace sumpter::tests
