// What an exchange writes into a trace: as many pieces as it counts, on the rows of the threads that summed them.
#include "base/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <latch>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/thread.h"
#include "sumpter/exchange.h"
#include "tests/exchange/buffers.h"
#include "tests/support/members.h"
#include "tests/support/temporary_directory.h"

namespace sumpter {
namespace {

using nlohmann::json;
using tests::As;
using tests::Member;
using tests::run_members;

// By thread and name, "member 0: sum".
std::map<std::string, std::vector<json>> spans_of(const Trace& trace) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("sumpter-exchange-trace-" + std::to_string(getpid()) + ".json");
  trace.write(path);
  const json file = json::parse(read_file(path));
  std::filesystem::remove(path);
  std::map<int, std::string> rows;
  std::map<std::string, std::vector<json>> spans;
  for (const json& event : file.at("traceEvents")) {
    if (event.at("name") == "thread_name") rows[event.at("tid")] = event.at("args").at("name");
    if (event.at("ph") != "X") continue;
    spans[rows.at(event.at("tid")) + ": " + event.at("name").get<std::string>()].push_back(event);
  }
  return spans;
}

WorkerCounters total_of(const std::vector<json>& spans) {
  WorkerCounters total;
  for (const json& span : spans) {
    ++total.pieces;
    total.bytes += span.at("args").at("bytes").get<std::uint64_t>();
  }
  return total;
}

WorkerCounters operator+(const WorkerCounters& a, const WorkerCounters& b) {
  return {.pieces = a.pieces + b.pieces, .bytes = a.bytes + b.bytes};
}

void expect_same(const WorkerCounters& spans, const WorkerCounters& counted, const std::string& who) {
  EXPECT_EQ(spans.pieces, counted.pieces) << who;
  EXPECT_EQ(spans.bytes, counted.bytes) << who;
}

// Operations 1 to 4: one of many pieces, one that is small, one that scatters, one that only copies.
void operate(Exchange& exchange) {
  std::vector<float> large(50'000, 1.0F), small(10, 1.0F), blocks(30'000, 1.0F), block(10'000), all(30'000);
  exchange.all_reduce(large);
  exchange.all_reduce(small);
  exchange.begin_reduce_scatter({blocks.data(), 30'000}, {block.data(), 10'000}, {}).wait();
  exchange.begin_all_gather({block.data(), 10'000}, {all.data(), 30'000}, ElementType::f32).wait();
  tests::require(std::ranges::all_of(all, [](float x) { return x == 3.0F; }), "a wrong sum");
}

// As [pieces, bytes] of each member.
std::vector<WorkerCounters> own_counters(const std::vector<tests::Outcome>& outcomes) {
  std::vector<WorkerCounters> all;
  for (const auto& outcome : outcomes) {
    EXPECT_TRUE(outcome.done) << describe(outcome);
    const auto numbers = tests::values_of<std::uint64_t>(outcome.result);
    all.push_back({.pieces = numbers.at(0), .bytes = numbers.at(1)});
  }
  return all;
}

TEST(ExchangeTrace, ShowsEachPieceOnTheRowOfWhoSumsIt) {
  for (const int reducers : {0, 2}) {
    SCOPED_TRACE(reducers);
    Trace trace;
    Group group({.members = 3, .piece = 4'096, .reducers = reducers, .trace = &trace});
    const auto outcomes = run_members(3, As::threads, [&](Member& me) {
      name_this_thread("member " + std::to_string(me.rank()));
      Exchange exchange = group.join(me.rank());
      operate(exchange);
      exchange.barrier();
      const ExchangeCounters counters = exchange.counters();
      me.give(tests::bytes_of(std::vector<std::uint64_t>{counters.own.pieces, counters.own.bytes}));
    });
    auto spans = spans_of(trace);
    const auto members = own_counters(outcomes);
    for (int rank = 0; rank < 3; ++rank) {
      const std::string name = "member " + std::to_string(rank);
      const WorkerCounters shown = total_of(spans[name + ": sum"]) + total_of(spans[name + ": copy"]);
      expect_same(shown, members[static_cast<std::size_t>(rank)], name);
    }
    WorkerCounters counted;
    for (const WorkerCounters& reducer : group.reducer_counters()) counted = counted + reducer;
    expect_same(total_of(spans["reducer: sum"]) + total_of(spans["reducer: copy"]), counted, "reducers");

    // Whoever did it: what each operation read. A small one is summed by each member.
    std::map<std::string, std::map<int, std::uint64_t>> bytes;
    for (const auto& [row, events] : spans) {
      const std::string name = row.substr(row.find(": ") + 2);
      for (const json& event : events) {
        if (name == "wait") continue;
        bytes[name][event.at("args").at("operation")] += event.at("args").at("bytes").get<std::uint64_t>();
      }
    }
    EXPECT_EQ(bytes["sum"],
              (std::map<int, std::uint64_t>{{1, 3 * 50'000 * 4}, {2, 3 * 3 * 10 * 4}, {3, 3 * 30'000 * 4}}));
    EXPECT_EQ(bytes["copy"], (std::map<int, std::uint64_t>{{4, 3 * 30'000 * 4}}));
  }
}

TEST(ExchangeTrace, ShowsWhereAMemberWaits) {
  constexpr std::chrono::milliseconds kLimit{50};
  Trace trace;
  Group group({.members = 2, .time_limit = kLimit, .trace = &trace});
  std::latch over(1);
  const auto outcomes = run_members(2, As::threads, [&](Member& me) {
    name_this_thread("member " + std::to_string(me.rank()));
    Exchange exchange = group.join(me.rank());
    if (me.rank() == 1) {  // takes part in nothing
      over.wait();
      return;
    }
    try {
      exchange.barrier();
    } catch (const TimeoutError&) {
      me.give("timeout");
    }
    over.count_down();
  });
  EXPECT_EQ(outcomes.at(0).result, "timeout");
  const auto spans = spans_of(trace);
  ASSERT_EQ(spans.size(), 1U);
  const std::vector<json>& waits = spans.at("member 0: wait");
  ASSERT_EQ(waits.size(), 1U);  // there was nothing to help with in between
  EXPECT_EQ(waits[0].at("args"), json({{"operation", 1}}));
  EXPECT_GT(waits[0].at("dur").get<double>(), 0.0);
}

TEST(ExchangeTrace, IsWrittenByEachProcessThatConnected) {
  const tests::TemporaryDirectory meeting;
  const auto outcomes = run_members(3, As::processes, [&](Member& me) {
    name_this_thread("member");
    Trace trace;
    ExchangeCounters counters;
    {
      FileRendezvous rendezvous(meeting.path());
      Exchange exchange = Exchange::connect(
          me.rank(), {.members = 3, .piece = 4'096, .reducers = me.rank(), .trace = &trace}, rendezvous);
      operate(exchange);
      exchange.barrier();
      counters = exchange.counters();
    }
    auto spans = spans_of(trace);
    expect_same(total_of(spans["member: sum"]) + total_of(spans["member: copy"]), counters.own, "the member");
    EXPECT_EQ(counters.reducers.size(), static_cast<std::size_t>(me.rank()));
    WorkerCounters reducers;
    for (const WorkerCounters& reducer : counters.reducers) reducers = reducers + reducer;
    expect_same(total_of(spans["reducer: sum"]) + total_of(spans["reducer: copy"]), reducers, "its reducers");
    me.give(tests::bytes_of(
        std::vector<std::uint64_t>{counters.own.pieces + reducers.pieces, counters.own.bytes + reducers.bytes}));
  });
  std::uint64_t bytes = 0;
  for (const WorkerCounters& counted : own_counters(outcomes)) bytes += counted.bytes;
  // All but the gathering, which copies through slots.
  EXPECT_EQ(bytes, 3U * 50'000 * 4 + 3U * 3 * 10 * 4 + 3U * 3 * 10'000 * 4);
}

TEST(ExchangeTrace, IsNotWrittenByForkedProcesses) {
  Trace trace;
  Group group({.members = 3, .piece = 4'096, .reducers = 1, .trace = &trace});
  const auto outcomes = run_members(3, As::processes, [&](Member& me) {
    Exchange exchange = group.join(me.rank());
    operate(exchange);
    const ExchangeCounters counters = exchange.counters();
    // The small operation's, at least, by whichever thread.
    const std::uint64_t pieces = counters.own.pieces + counters.reducers.at(0).pieces;
    me.give(tests::bytes_of(std::vector<std::uint64_t>{pieces, spans_of(trace).size()}));
  });
  for (const WorkerCounters& counted : own_counters(outcomes)) {
    EXPECT_GT(counted.pieces, 0U);
    EXPECT_EQ(counted.bytes, 0U);  // the second number: rows of the trace
  }
}

}  // namespace
}  // namespace sumpter
