#include <algorithm>
#include <cmath>

#include "input/split.h"
#include "train/run.h"

namespace sumpter {
namespace {

constexpr std::size_t kEvaluationRows = 256;  // at a time

}  // namespace

Worker::Worker(Run& run, int rank, Exchange& exchange)
    : run_(run),
      rank_(rank),
      exchange_(exchange),
      replica_(run.models[static_cast<std::size_t>(rank)], *run.context, exchange),
      step_began_(Clock::now()) {}

void Worker::train() {
  if (rank_ == 0) run_.listener.began(run_.steps, run_.steps_per_epoch);
  for (std::uint64_t number = 0; number < run_.steps; ++number) {
    if (!step(number)) break;
    const bool ends_epoch = (number + 1) % run_.steps_per_epoch == 0;
    if ((ends_epoch || number + 1 == run_.steps) && !(settle() && evaluate())) break;
  }
  const double seconds = std::max(seconds_, 1e-9);
  run_.outcomes[static_cast<std::size_t>(rank_)] = {.chunks = replica_.step().chunks_exchanged(),
                                                    .share_exchange = replica_.step().seconds_in_exchange() / seconds,
                                                    .share_input = seconds_input_ / seconds};
  if (rank_ == 0) run_.result.seconds = seconds_;
}

bool Worker::step(std::uint64_t number) {
  const auto asked = Clock::now();
  std::optional<Batch> batch = run_.ring.next(rank_);
  if (!batch) return false;  // another replica has failed
  const double seconds_input = seconds_since(asked);
  const double share = static_cast<double>(batch->rows()) / static_cast<double>(batch->all_rows());
  const double loss = replica_.forward({batch->images(), batch->labels(), run_.options.data.train->shape()});
  batch->release();

  if (!settle()) return false;
  run_.reports[number % 2][static_cast<std::size_t>(rank_)] = {.loss = loss * share, .stop = run_.stop};
  under_way_ = {.step = number, .epoch = batch->epoch(), .rows = batch->all_rows(), .seconds_input = seconds_input};
  replica_.backward();
  return true;
}

bool Worker::settle() {
  if (!under_way_) return true;
  replica_.finish();
  StepReport report = *std::exchange(under_way_, std::nullopt);
  bool stop = false;
  for (const ReplicaReport& part : run_.reports[report.step % 2]) {
    report.loss += part.loss;
    stop = stop || part.stop;
  }
  const auto now = Clock::now();
  const double seconds_exchange = replica_.step().seconds_in_exchange();
  report.seconds = seconds_between(std::exchange(step_began_, now), now);
  report.seconds_exchange = seconds_exchange - std::exchange(exchange_before_, seconds_exchange);
  seconds_ += report.seconds;
  seconds_input_ += report.seconds_input;
  if (rank_ == 0) {
    run_.result.steps = report.step + 1;
    run_.result.rows += report.rows;
    run_.result.loss = report.loss;
    run_.result.stopped = stop;
    run_.result.evaluation.reset();  // it was of other parameters
    run_.listener.stepped(report);
  }
  return !stop && std::isfinite(report.loss);
}

bool Worker::evaluate() {
  if (run_.options.data.test == nullptr) return true;
  const Score own = evaluate_own_rows();
  std::array<double, 3> sums = {own.loss, static_cast<double>(own.right), run_.stop ? 1.0 : 0.0};
  exchange_.all_reduce({sums.data(), sums.size()}, {.type = ElementType::f64});
  const bool stop = sums[2] > 0;
  if (rank_ == 0) {
    const std::size_t rows = run_.options.data.test->size();
    run_.result.stopped = stop;
    if (!stop) {
      run_.result.evaluation = {.step = run_.result.steps,
                                .epoch = (run_.result.steps - 1) / run_.steps_per_epoch,
                                .rows = rows,
                                .loss = sums[0] / static_cast<double>(rows),
                                .top1 = sums[1] / static_cast<double>(rows)};
      run_.listener.evaluated(*run_.result.evaluation);
    }
  }
  step_began_ = Clock::now();
  return !stop;
}

Score Worker::evaluate_own_rows() {
  const Dataset& test = *run_.options.data.test;
  const std::size_t image_bytes = test.shape().bytes();
  const RowRange own = split_rows(test.size(), run_.models.size(), static_cast<std::size_t>(rank_));
  std::vector<std::uint8_t> images(std::min(own.rows, kEvaluationRows) * image_bytes);
  std::vector<std::int64_t> labels;
  Score total;
  for (std::size_t begin = 0; begin < own.rows && !run_.stop; begin += kEvaluationRows) {
    labels.resize(std::min(kEvaluationRows, own.rows - begin));
    for (std::size_t i = 0; i < labels.size(); ++i)
      labels[i] = test.get({.index = own.begin + begin + i}, std::span(images).subspan(i * image_bytes, image_bytes));
    const Score score = replica_.evaluate({std::span(images).first(labels.size() * image_bytes), labels, test.shape()});
    total.loss += score.loss;
    total.right += score.right;
  }
  return total;
}

}  // namespace sumpter
