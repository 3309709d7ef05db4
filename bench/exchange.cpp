// `sumpter bench exchange`: all-reduces of float32 against the least that any of them has to do with memory.
#include "sumpter/exchange.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdint>
#include <iostream>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "bench/bench.h"
#include "bench/harness.h"
#include "bench/limit.h"
#include "bench/peer.h"
#include "bench/team.h"

namespace sumpter::bench {
namespace {

constexpr int kMostMembers = 16;

struct Options {
  BenchOptions common;
  int members = 2;
  bool processes = false;
  int reducers = 0;
  int window = GroupOptions{}.window;
  std::vector<std::string> sizes{"4KiB", "64KiB", "1MiB", "4MiB", "16MiB", "64MiB", "256MiB"};
  std::string piece = format_bytes(GroupOptions{}.piece);
  std::vector<std::string> peers;

  GroupOptions group() const {
    return {.members = members, .piece = parse_bytes(piece, "--piece"), .reducers = reducers, .window = window};
  }
};

// What a round is about, packed into the number that a team passes on.
enum class Action { verify_own, verify_arena, reduce_own, reduce_arena, limit };
struct Job {
  Action action;
  std::size_t size;  // index into the sizes

  int number() const { return static_cast<int>(size) * 8 + static_cast<int>(action); }
  static Job of(int number) { return {static_cast<Action>(number % 8), static_cast<std::size_t>(number / 8)}; }
  bool verifies() const { return action == Action::verify_own || action == Action::verify_arena; }
  bool in_arena() const { return action == Action::verify_arena || action == Action::reduce_arena; }
};

float pattern(std::size_t i) { return static_cast<float>(i % 7 + 1); }

// What the members of one team know of each other.
struct TeamPlan {
  int members = 0;
  std::vector<std::size_t> counts;
  Group* group = nullptr;       // null: this team never reduces, it only shows the limit
  bool arena = false;           // have a buffer in the arena, too
  std::vector<float*> buffers;  // of all members where they are threads
};

class Member : public TeamMember {
 public:
  Member(TeamPlan& plan, int rank)
      : plan_(plan), rank_(rank), own_(*std::max_element(plan.counts.begin(), plan.counts.end())) {
    plan_.buffers[static_cast<std::size_t>(rank)] = own_.data();
    if (plan.group != nullptr) exchange_.emplace(plan.group->join(rank));
    if (plan.arena) arena_ = exchange_->allocate(own_.size() * sizeof(float));
  }

  void prepare(int number) override {
    const Job job = Job::of(number);
    const std::span<float> values = values_of(job);
    if (!job.verifies()) {
      std::fill(values.begin(), values.end(), static_cast<float>(rank_ + 1));
      return;
    }
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(rank_ + 1) * pattern(i);
  }

  void run(int number) override {
    const Job job = Job::of(number);
    const std::span<float> values = values_of(job);
    if (job.action == Action::limit) {
      const auto rank = static_cast<std::size_t>(rank_);
      const auto members = static_cast<std::size_t>(plan_.members);
      sum_limit(plan_.buffers, plan_.buffers, values.size() * rank / members, values.size() * (rank + 1) / members);
      return;
    }
    exchange_->all_reduce(values);
    if (job.verifies()) verify(values);
  }

 private:
  std::span<float> values_of(const Job& job) {
    float* data = job.in_arena() ? static_cast<float*>(arena_.data()) : own_.data();
    return {data, plan_.counts[job.size]};
  }

  void verify(std::span<const float> values) const {
    const int rank_sum = plan_.members * (plan_.members + 1) / 2;
    const auto ranks = static_cast<float>(rank_sum);
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (values[i] == ranks * pattern(i)) continue;
      raise<Error>("the sum of {} is wrong: element {} is {} instead of {}", format_bytes(values.size_bytes()), i,
                   values[i], ranks * pattern(i));
    }
  }

  TeamPlan& plan_;
  int rank_;
  std::vector<float> own_;
  std::optional<Exchange> exchange_;
  SharedMemory arena_;
};

TeamPlan plan_team(const Options& options) {
  return {.members = options.members,
          .counts = parse_counts(options.sizes),
          .buffers = std::vector<float*>(static_cast<std::size_t>(options.members))};
}

Team::MakeMember members_of(TeamPlan& plan) {
  return [&plan](int rank) { return std::make_unique<Member>(plan, rank); };
}

// nccl-tests' figures: bytes over seconds, and that times 2(n-1)/n, the share of a link that a ring would use.
std::vector<Report::Column> bandwidths(int members) {
  const auto column = [](std::string title, double factor) {
    return Report::Column{std::move(title), [factor](const Figure& figure) {
                            return fmt::format("{:.2f} GB/s",
                                               1e-9 * factor * static_cast<double>(figure.bytes) / figure.seconds);
                          }};
  };
  return {column("algbw", 1), column("busbw", 2.0 * (members - 1) / members)};
}

void bench_exchange(const Options& options) {
  // Forked before there are threads.
  Group process_group(options.group());
  TeamPlan process_plan = plan_team(options);
  process_plan.group = &process_group;
  process_plan.arena = options.processes;
  Team processes(Team::Kind::processes, options.members, members_of(process_plan));

  std::optional<Group> thread_group;
  TeamPlan thread_plan = plan_team(options);
  if (!options.processes) thread_plan.group = &thread_group.emplace(options.group());
  Team threads(Team::Kind::threads, options.members, members_of(thread_plan));

  std::vector<std::unique_ptr<Peer>> peers;
  for (const std::string& peer : options.peers) peers.push_back(std::make_unique<Peer>(peer));

  Team& in_place = options.processes ? processes : threads;
  const Action verify_in_place = options.processes ? Action::verify_arena : Action::verify_own;
  const Action reduce_in_place = options.processes ? Action::reduce_arena : Action::reduce_own;
  const CompareOptions compare_options = options.common.compare_options();
  Report report(std::cout, options.common.json, bandwidths(options.members));
  for (std::size_t size = 0; size < thread_plan.counts.size(); ++size) {
    in_place.round(Job{verify_in_place, size}.number(), 1);
    processes.round(Job{Action::verify_own, size}.number(), 1);

    const std::size_t bytes = thread_plan.counts[size] * sizeof(float);
    const auto contender = [&](std::string name, std::vector<std::string> against, std::function<double(int)> round) {
      return Contender{
          .name = std::move(name), .bytes = bytes, .against = std::move(against), .round = std::move(round)};
    };
    std::vector<Contender> contenders{
        contender("limit", {}, threads.job(Job{Action::limit, size}.number())),
        contender("in-place", {"limit"}, in_place.job(Job{reduce_in_place, size}.number())),
        contender("staged", {"limit"}, processes.job(Job{Action::reduce_own, size}.number()))};
    for (const auto& peer : peers) {
      contenders.push_back(contender(peer->name(), {"in-place", "staged"}, peer->job(std::to_string(bytes))));
    }
    report.add(compare(contenders, compare_options));
  }
}

}  // namespace

void add_bench_exchange(CLI::App& parent) {
  auto options = std::make_shared<Options>();
  CLI::App* app = parent.add_subcommand(
      "exchange",
      "All-reduces of float32, in place (threads' own memory) and staged (processes' private memory), against a plain "
      "loop that reads every input and writes every output once");
  add_bench_options(*app, options->common);
  app->add_option("--members", options->members, "Members of the group")
      ->check(CLI::Range(1, kMostMembers))
      ->capture_default_str();
  app->add_flag("--processes", options->processes, "In place between processes, in the arena, instead of threads");
  app->add_option("--sizes", options->sizes, "Bytes to reduce, such as 4KiB,16MiB")
      ->delimiter(',')
      ->capture_default_str();
  app->add_option("--reducers", options->reducers, "Threads that only sum")->capture_default_str();
  app->add_option("--piece", options->piece, "Bytes of a piece")->capture_default_str();
  app->add_option("--window", options->window, "Staged pieces in flight per member")->capture_default_str();
  app->add_option("--peer", options->peers, "NAME=COMMAND: a program that takes turns with ours; see bench/peers");
  app->callback([options] { bench_exchange(*options); });
}

}  // namespace sumpter::bench
