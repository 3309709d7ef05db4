#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/log.h"
#include "input/item.h"
#include "input/split.h"
#include "train/footprint.h"
#include "train/memory.h"
#include "train/run.h"
#include "train/snapshot.h"

namespace sumpter {
namespace {

constexpr std::size_t kEvaluationRows = 256;  // at a time

Rows rows_of(const Dataset& data, std::span<const std::uint8_t> images, std::span<const std::int64_t> labels) {
  return {.images = images, .labels = labels, .shape = data.shape(), .type = data.type()};
}

}  // namespace

Worker::Worker(Run& run, int rank, Exchange& exchange)
    : run_(run),
      rank_(rank),
      exchange_(exchange),
      replica_(*run.networks[static_cast<std::size_t>(rank)], *run.context, exchange,
               {.input = run.job.input,
                .accumulate = run.options.plan.accumulate,
                .seed = run.options.seed,
                .default_generator = run.job.default_generator,
                .trace = run.trace.get()}),
      done_(run.first_step),
      saved_(run.first_step),
      step_began_(Clock::now()),
      last_save_(step_began_) {
  if (run.result.best) best_top1_ = run.result.best->top1;
  const auto loaded = std::exchange(run.loaded[static_cast<std::size_t>(rank)], nullptr);
  if (loaded != nullptr)
    restore_replica(*loaded, rank, *run.networks[static_cast<std::size_t>(rank)], replica_.step(),
                    run.job.default_generator);
}

void Worker::train() {
  if (rank_ == 0)
    run_.listener.began({.steps = run_.steps,
                         .steps_per_epoch = run_.steps_per_epoch,
                         .first_step = run_.first_step,
                         .memory = run_.result.memory});
  const bool whole = all_steps();
  // Only what follows from a finite loss is kept.
  if (run_.checkpoints && finite_ && saved_ != done_) save(/*best=*/false, /*last=*/true);
  if (!whole) replica_.withdraw();
  run_.snapshots[static_cast<std::size_t>(rank_)].extras = replica_.extras();
  const double seconds = std::max(seconds_, 1e-9);
  run_.outcomes[static_cast<std::size_t>(rank_)] = {.chunks = replica_.step().chunks_exchanged(),
                                                    .overflows = replica_.step().overflows(),
                                                    .share_exchange = replica_.step().seconds_in_exchange() / seconds,
                                                    .share_input = seconds_input_ / seconds};
  if (rank_ == 0) run_.result.seconds = seconds_;
}

// False when the run ended before its last step.
bool Worker::all_steps() {
  if ((done_ >= run_.steps || run_.evaluation_is_missing) && !evaluate()) return false;
  for (std::uint64_t number = done_; number < run_.steps; ++number) {
    if (!step(number)) return false;
    const bool ends_epoch = (number + 1) % run_.steps_per_epoch == 0;
    if ((ends_epoch || number + 1 == run_.steps) && !(settle() && evaluate())) return false;
  }
  return true;
}

bool Worker::step(std::uint64_t number) {
  if (rank_ == 0 && run_.trace && number == run_.first_traced()) run_.trace->record(true);
  const auto asked = Clock::now();
  std::optional<Batch> batch = run_.ring.next(rank_);
  if (!batch) return false;  // another replica has failed
  const double seconds_input = seconds_since(asked);
  const double share = static_cast<double>(batch->rows()) / static_cast<double>(batch->all_rows());
  std::optional<MemoryWatch> memory;
  if (number == run_.first_step && rank_ == 0) memory.emplace();
  const double loss = replica_.forward(rows_of(*run_.options.data.train, batch->images(), batch->labels()), number);
  batch->release();

  if (!settle()) return false;
  if (save_due_) save(/*best=*/false, /*last=*/false);
  run_.reports[number % 2][static_cast<std::size_t>(rank_)] = {
      .loss = loss * share, .stop = run_.stop, .save = rank_ == 0 && save_is_due(number)};
  under_way_ = {.step = number, .epoch = batch->epoch(), .rows = batch->all_rows(), .seconds_input = seconds_input};
  replica_.backward();
  if (memory) check_footprint(run_, memory->peak());
  return true;
}

bool Worker::save_is_due(std::uint64_t number) {
  const CheckpointOptions& options = run_.options.checkpoint;
  if (!run_.checkpoints) return false;
  if (options.every_steps != 0 && (number + 1) % options.every_steps == 0) return true;
  return options.every_time.count() > 0 && Clock::now() - last_save_ >= options.every_time;
}

bool Worker::settle() {
  if (!under_way_) return true;
  replica_.finish();
  StepReport report = *std::exchange(under_way_, std::nullopt);
  bool stop = false;
  const auto& parts = run_.reports[report.step % 2];
  for (const ReplicaReport& part : parts) {
    report.loss += part.loss;
    stop = stop || part.stop;
  }
  done_ = report.step + 1;
  if (rank_ == 0 && run_.trace && done_ == run_.first_traced() + run_.options.trace.steps) run_.trace->record(false);
  const bool was_finite = std::exchange(finite_, std::isfinite(report.loss));
  save_due_ = (save_due_ || parts[0].save) && finite_;
  if (rank_ == 0 && was_finite && !finite_ && run_.options.go_on_when_not_finite)
    log::warning("the loss of step {} is {}; training goes on, no checkpoint is written while it is so", report.step,
                 report.loss);
  this->report(report, stop);
  return !stop && (finite_ || run_.options.go_on_when_not_finite);
}

void Worker::report(StepReport& report, bool stopped) {
  const auto now = Clock::now();
  const double seconds_exchange = replica_.step().seconds_in_exchange();
  report.seconds = seconds_between(std::exchange(step_began_, now), now);
  report.seconds_exchange = seconds_exchange - std::exchange(exchange_before_, seconds_exchange);
  seconds_ += report.seconds;
  seconds_input_ += report.seconds_input;
  if (rank_ != 0) return;
  report.learning_rate = run_.options.optimizer.learning_rate * run_.options.schedule.factor(report.step);
  report.gradient_norm = replica_.step().gradient_norm();
  run_.result.steps = report.step + 1;
  run_.result.rows += report.rows;
  run_.result.loss = report.loss;
  run_.result.stopped = stopped;
  run_.result.evaluation.reset();  // it was of other parameters
  run_.listener.stepped(report);
}

bool Worker::evaluate() {
  if (run_.options.data.test == nullptr) return true;
  exchange_.barrier();  // rank 0's buffers are those of the last step, and stay so until the scores are exchanged
  const Score own = evaluate_own_rows();
  std::array<double, 4> sums = {own.loss, static_cast<double>(own.right), static_cast<double>(own.predictions),
                                run_.stop ? 1.0 : 0.0};
  exchange_.all_reduce({sums.data(), sums.size()}, {.type = ElementType::f64});
  const bool stop = sums[3] > 0;
  const double top1 = sums[1] / sums[2];
  const bool best = !stop && finite_ && std::isfinite(sums[0]) && (!best_top1_ || top1 > *best_top1_);
  if (best) best_top1_ = top1;
  if (rank_ == 0) {
    RunResult& result = run_.result;
    const std::size_t rows = run_.options.data.test->size();
    result.stopped = stop;
    if (!stop) {
      result.evaluation = {.step = done_,
                           .epoch = (done_ - 1) / run_.steps_per_epoch,
                           .rows = rows,
                           .loss = sums[0] / static_cast<double>(rows),
                           .top1 = top1};
      if (best) result.best = result.evaluation;
      run_.listener.evaluated(*result.evaluation);
    }
  }
  if (!stop && run_.checkpoints && (save_due_ || best)) save(best, /*last=*/false);
  step_began_ = Clock::now();
  return !stop;
}

Score Worker::evaluate_own_rows() {
  const Dataset& test = *run_.options.data.test;
  const std::size_t image_bytes = test.image_bytes();
  const RowRange own = split_rows(test.size(), run_.networks.size(), static_cast<std::size_t>(rank_));
  std::vector<std::uint8_t> images(std::min(own.rows, kEvaluationRows) * image_bytes);
  std::vector<std::int64_t> labels;
  std::optional<BorrowedBuffers> borrowed;
  if (rank_ != 0) borrowed.emplace(*run_.networks[static_cast<std::size_t>(rank_)], *run_.networks.front());
  Score total;
  for (std::size_t begin = 0; begin < own.rows && !run_.stop; begin += kEvaluationRows) {
    labels.resize(std::min(kEvaluationRows, own.rows - begin));
    for (std::size_t i = 0; i < labels.size(); ++i)
      labels[i] =
          read_item(test, {.index = own.begin + begin + i}, std::span(images).subspan(i * image_bytes, image_bytes));
    const Score score = replica_.evaluate(rows_of(test, std::span(images).first(labels.size() * image_bytes), labels));
    total.loss += score.loss;
    total.right += score.right;
    total.predictions += score.predictions;
  }
  return total;
}

void Worker::save(bool best, bool last) {
  const TraceSpan span(run_.trace.get(), "checkpoint");
  run_.snapshots[static_cast<std::size_t>(rank_)] = {.extras = replica_.extras(), .step = replica_.step().state()};
  exchange_.barrier();  // all replicas have finished the same steps, and wait
  if (rank_ == 0) {
    try {
      if (save_checkpoint(run_, done_, best)) ++run_.result.checkpoints;
    } catch (const SystemError& error) {
      ++run_.result.checkpoints_failed;
      log::error("{}; {}those written before are whole", error.what(), last ? "" : "training goes on, and ");
    }
  }
  exchange_.barrier();
  save_due_ = false;
  saved_ = done_;
  step_began_ = last_save_ = Clock::now();
}

}  // namespace sumpter
