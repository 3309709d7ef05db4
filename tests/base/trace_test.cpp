#include "base/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "base/thread.h"
#include "sumpter/error.h"

namespace sumpter {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::IsEmpty;
using namespace std::chrono_literals;

const Clock::time_point kStart{5s};  // any: files count from their earliest event

json written(const Trace& trace) {
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / ("sumpter-trace-" + std::to_string(getpid()) + ".json");
  trace.write(file);
  const std::string text = read_file(file);
  std::filesystem::remove(file);
  return json::parse(text);
}

// What a viewer shows: the rows of a group from top to bottom, and the events of each.
struct ShownRow {
  std::string name;
  std::vector<json> events;
};

std::vector<ShownRow> shown(const json& file, const std::string& group) {
  json pid;
  std::map<int, int> position;  // of a tid
  std::map<int, ShownRow> rows;
  for (const json& event : file.at("traceEvents")) {
    if (event.at("name") == "process_name" && event.at("args").at("name") == group) pid = event.at("pid");
    if (event.at("pid") != pid) continue;
    const int tid = event.at("tid");
    if (event.at("name") == "thread_sort_index") position[tid] = event.at("args").at("sort_index");
    if (event.at("name") == "thread_name") rows[tid].name = event.at("args").at("name");
    if (event.at("ph") == "X") rows[tid].events.push_back(event);
  }
  std::map<int, ShownRow> ordered;
  for (const auto& [tid, row] : rows) ordered[position.at(tid)] = row;
  EXPECT_EQ(ordered.size(), rows.size());
  std::vector<ShownRow> all;
  for (const auto& [place, row] : ordered) all.push_back(row);
  return all;
}

std::vector<std::string> names_of(const std::vector<ShownRow>& rows) {
  std::vector<std::string> names;
  for (const ShownRow& row : rows) names.push_back(row.name);
  return names;
}

std::vector<std::string> names_of(const ShownRow& row) {
  std::vector<std::string> names;
  for (const json& event : row.events) names.push_back(event.at("name"));
  return names;
}

void add_named(Trace& trace, const std::string& thread, Clock::time_point begin) {
  std::jthread([&] {
    name_this_thread(thread);
    trace.span("work", begin, begin + 1us);
  });
}

TEST(Trace, WritesSpansWithTheirArguments) {
  Trace trace;
  std::jthread([&] {
    name_this_thread("loader 3");
    trace.span("inner", kStart + 1500ns, kStart + 2501ns, {"step", -7}, {"rank", 1});
    trace.span("outer", kStart, kStart + 12'345'678ns, {"step", 9'007'199'254'740'993});
    trace.span("first", kStart, kStart + 1us);
  });
  const std::vector<ShownRow> rows = shown(written(trace), "threads");
  ASSERT_THAT(names_of(rows), ElementsAre("loader 3"));
  ASSERT_THAT(names_of(rows[0]), ElementsAre("outer", "first", "inner"));  // by begin, the outer one first
  const json& outer = rows[0].events[0];
  EXPECT_EQ(outer.at("ts").dump(), "0.0");
  EXPECT_EQ(outer.at("dur").dump(), "12345.678");  // microseconds
  EXPECT_EQ(outer.at("args"), json({{"step", 9'007'199'254'740'993}}));
  EXPECT_EQ(rows[0].events[1].at("args"), json::object());
  const json& inner = rows[0].events[2];
  EXPECT_EQ(inner.at("ts").dump(), "1.5");
  EXPECT_EQ(inner.at("dur").dump(), "1.001");
  EXPECT_EQ(inner.at("args"), json({{"step", -7}, {"rank", 1}}));
}

TEST(Trace, OrdersThreadsByNameAndNumber) {
  Trace trace;
  add_named(trace, "replica 10", kStart);
  add_named(trace, "replica 2", kStart);
  add_named(trace, "input", kStart + 2us);
  add_named(trace, "input", kStart + 1us);
  add_named(trace, "7", kStart);
  const std::vector<ShownRow> rows = shown(written(trace), "threads");
  ASSERT_THAT(names_of(rows), ElementsAre("7", "input", "input", "replica 2", "replica 10"));
  EXPECT_EQ(rows[1].events[0].at("ts").dump(), "1.0");
  EXPECT_EQ(rows[2].events[0].at("ts").dump(), "2.0");
}

TEST(Trace, SpreadsFlightsThatOverlapOverLines) {
  Trace trace;
  const auto flight = [&](std::uint64_t id, std::chrono::microseconds begin, std::chrono::microseconds end) {
    trace.flight("chunks of replica 0", "chunk", id, kStart + begin, kStart + end, {"bytes", 64});
  };
  flight(2, 5us, 20us);
  flight(0, 0us, 10us);
  flight(1, 2us, 4us);
  flight(3, 10us, 30us);
  flight(4, 4us, 5us);
  trace.flight("chunks of replica 1", "chunk", 0, kStart, kStart + 1us);
  const std::vector<ShownRow> rows = shown(written(trace), "under way");
  ASSERT_THAT(names_of(rows), ElementsAre("chunks of replica 0", "chunks of replica 0", "chunks of replica 1"));
  std::vector<std::vector<int>> ids;
  for (const ShownRow& row : rows) {
    ids.emplace_back();
    for (const json& event : row.events) ids.back().push_back(event.at("args").at("id"));
  }
  EXPECT_THAT(ids, ElementsAre(ElementsAre(0, 3), ElementsAre(1, 4, 2), ElementsAre(0)));
  EXPECT_EQ(rows[0].events[1].at("args"), json({{"id", 3}, {"bytes", 64}}));
  EXPECT_EQ(rows[0].events[1].at("ts").dump(), "10.0");
  EXPECT_EQ(rows[0].events[1].at("dur").dump(), "20.0");
  EXPECT_THAT(shown(written(trace), "threads"), IsEmpty());
}

TEST(Trace, WritesAnyNameAsValidJson) {
  const std::vector<std::pair<std::string, std::string>> names = {
      {"a\"b\\c\n\t\x01", "a\"b\\c\n\t\x01"},
      {"", ""},
      {"z\xC3\xBC\xE2\x82\xAC\xF0\x9F\x98\x80", "z\xC3\xBC\xE2\x82\xAC\xF0\x9F\x98\x80"},
      {"cut\xE2\x82", "cut\xEF\xBF\xBD\xEF\xBF\xBD"},
      {"\xC0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD"},                                  // longer than needed
      {"\xED\xA0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},                  // a surrogate
      {"\xF4\x90\x80\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},  // beyond Unicode
      {"\xFFx", "\xEF\xBF\xBDx"},
  };
  for (const auto& [name, expected] : names) {
    Trace trace;
    trace.flight(name, name.c_str(), 1, kStart, kStart, {name.c_str(), 1});
    const std::vector<ShownRow> rows = shown(written(trace), "under way");
    ASSERT_EQ(rows.size(), 1U);
    EXPECT_EQ(rows[0].name, expected);
    EXPECT_EQ(rows[0].events.at(0).at("name"), expected);
    EXPECT_EQ(rows[0].events.at(0).at("args").at(expected), 1);
  }
}

TEST(Trace, WritesAnyByteAsValidJson) {
  Trace trace;
  for (unsigned first = 0; first < 256; ++first) {
    for (const unsigned second : {0x00U, 0x22U, 0x7FU, 0x80U, 0xA0U, 0xC3U}) {
      trace.flight({std::string{static_cast<char>(first), static_cast<char>(second)}}, "x", first, kStart, kStart);
    }
  }
  EXPECT_EQ(shown(written(trace), "under way").size(), 256U * 6);  // it parses
}

TEST(Trace, KeepsWhatThreadsAddAtTheSameTime) {
  constexpr int kThreads = 4;
  constexpr int kSpans = 2000;
  Trace trace;
  Trace other;
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      name_this_thread("thread " + std::to_string(thread));
      for (int i = 0; i < kSpans; ++i) {
        const Clock::time_point begin = kStart + i * 1us;
        trace.span("span", begin, begin + 1us, {"i", i});
        if (i % 100 == 0) other.span("other", begin, begin + 1us, {"i", i});  // on a row of its own there
      }
    });
  }
  threads.clear();
  EXPECT_EQ(trace.dropped(), 0U);
  const std::vector<ShownRow> rows = shown(written(trace), "threads");
  ASSERT_THAT(names_of(rows), ElementsAre("thread 0", "thread 1", "thread 2", "thread 3"));
  for (const ShownRow& row : rows) {
    ASSERT_EQ(row.events.size(), static_cast<std::size_t>(kSpans));
    for (int i = 0; i < kSpans; ++i) EXPECT_EQ(row.events[static_cast<std::size_t>(i)].at("args").at("i"), i);
  }
  for (const ShownRow& row : shown(written(other), "threads")) EXPECT_EQ(row.events.size(), 20U);
}

TEST(Trace, DropsAndCountsWhatExceedsItsRoom) {
  Trace trace(3);
  for (int i = 0; i < 8; ++i) trace.span("span", kStart, kStart + 1us, {"i", i});
  EXPECT_EQ(trace.dropped(), 5U);
  const json file = written(trace);
  EXPECT_EQ(shown(file, "threads").at(0).events.size(), 3U);
  EXPECT_EQ(file.at("otherData").at("dropped"), 5);
}

TEST(Trace, KeepsNothingWhileItDoesNotRecord) {
  Trace trace;
  EXPECT_TRUE(trace.recording());
  trace.record(false);
  trace.span("off", kStart, kStart + 1us);
  trace.flight("row", "off", 0, kStart, kStart + 1us);
  {
    const TraceSpan off(&trace, "off");
    trace.record(true);
  }
  EXPECT_EQ(trace.dropped(), 0U);
  EXPECT_EQ(written(trace).at("traceEvents").size(), 2U);  // the groups' names
  trace.span("on", kStart, kStart + 1us);
  EXPECT_THAT(names_of(shown(written(trace), "threads").at(0)), ElementsAre("on"));
}

TEST(TraceSpan, LastsUntilTheEndOfItsScope) {
  Trace trace;
  {
    const TraceSpan outer(&trace, "outer", {"step", 4});
    const TraceSpan inner(&trace, "inner");
  }
  { const TraceSpan nothing(nullptr, "nothing"); }
  const ShownRow row = shown(written(trace), "threads").at(0);
  ASSERT_THAT(names_of(row), ElementsAre("outer", "inner"));
  EXPECT_EQ(row.events[0].at("args"), json({{"step", 4}}));
  const auto end_of = [](const json& event) { return event.at("ts").get<double>() + event.at("dur").get<double>(); };
  EXPECT_LE(row.events[0].at("ts"), row.events[1].at("ts"));
  EXPECT_GE(end_of(row.events[0]) + 1e-3, end_of(row.events[1]));  // the sums are rounded
}

TEST(Trace, NamesTheFileThatCannotBeWritten) {
  const Trace trace;
  try {
    trace.write("/no/such/directory/trace.json");
    ADD_FAILURE() << "wrote it";
  } catch (const SystemError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("/no/such/directory/trace.json"));
  }
}

TEST(NameOfThisThread, IsWhatTheThreadWasGiven) {
  std::jthread([] {
    name_this_thread("short");
    EXPECT_EQ(name_of_this_thread(), "short");
    name_this_thread("sixteen and more characters");
    EXPECT_EQ(name_of_this_thread(), "sixteen and mor");
  });
}

}  // namespace
}  // namespace sumpter
