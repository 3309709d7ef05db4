#include "c10d/choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <latch>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/thread.h"

namespace sumpter {
namespace {

constexpr std::size_t kBucket = 256 * 1024;  // floats
constexpr int kBuckets = 3;                  // of a step
constexpr int kRounds = 7;                   // of each way; the first is not counted
constexpr double kGain = 0.97;               // of the time, that background needs to be preferred: it uses more cores

// Seconds of one step: buckets become ready one after the other while the caller computes, and are waited for in the
// end, as DistributedDataParallel does.
double play_step(Exchange& exchange, Completer& completer, std::span<const SharedMemory> buckets,
                 const std::function<void()>& compute) {
  exchange.barrier();
  const auto start = Clock::now();
  const auto ready = std::make_shared<std::latch>(static_cast<std::ptrdiff_t>(buckets.size()));
  std::vector<std::shared_ptr<Task>> tasks;
  for (const auto& bucket : buckets) {
    compute();
    const Part part{bucket.data(), kBucket};
    std::vector<Work> works;
    works.push_back(exchange.begin_all_reduce({&part, 1}, {.reduction = Reduction::average}));
    tasks.push_back(std::make_shared<ExchangeTask>(std::move(works), nullptr, std::chrono::minutes(1)));
    completer.add(tasks.back(), [ready](Task&) { ready->count_down(); });
  }
  ready->wait();
  for (const auto& task : tasks) {
    if (task->error() != nullptr) std::rethrow_exception(task->error());
  }
  return seconds_since(start);
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// What all members know already; none where one of them does not.
std::optional<Choice> agreed(Exchange& exchange, const std::optional<Choice>& known) {
  std::array<std::int64_t, 2> word{known ? 1 : 0, known && known->reductions == Reductions::background ? 1 : 0};
  exchange.all_reduce({word.data(), 1}, {.type = ElementType::i64, .reduction = Reduction::minimum});
  if (word[0] == 0) return std::nullopt;
  exchange.broadcast({word.data() + 1, 1}, ElementType::i64, 0);
  const Reductions first = word[1] == 1 ? Reductions::background : Reductions::waiting;
  if (known->reductions == first) return known;
  return Choice{first, "as rank 0 has found for an earlier group"};
}

}  // namespace

Choice choose_reductions(Exchange& exchange, const std::optional<Choice>& known, const std::function<void()>& compute) {
  if (auto choice = agreed(exchange, known)) return *choice;

  std::vector<SharedMemory> buckets;
  for (int i = 0; i < kBuckets; ++i) buckets.push_back(exchange.allocate(kBucket * sizeof(float)));
  Completer background(Reductions::background), waiting(Reductions::waiting);
  std::vector<double> with_background, with_waiting;
  for (int round = 0; round < kRounds; ++round) {
    exchange.pause_reducers(false);
    with_background.push_back(play_step(exchange, background, buckets, compute));
    exchange.pause_reducers(true);
    with_waiting.push_back(play_step(exchange, waiting, buckets, compute));
  }
  with_background.erase(with_background.begin());
  with_waiting.erase(with_waiting.begin());

  // The slowest member counts, on every member.
  std::array<double, 2> times{median(with_background), median(with_waiting)};
  exchange.all_reduce({times.data(), times.size()}, {.type = ElementType::f64, .reduction = Reduction::maximum});
  const bool better = times[0] < times[1] * kGain;
  return {
      better ? Reductions::background : Reductions::waiting,
      fmt::format("measured: a step of {} MiB took {:.2f} ms with sums in the background, {:.2f} ms with sums in the "
                  "waiting threads; {} cores, {} members",
                  kBuckets * kBucket * sizeof(float) >> 20, times[0] * 1e3, times[1] * 1e3, usable_cores(),
                  exchange.members())};
}

}  // namespace sumpter
