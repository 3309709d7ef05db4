#include "train/run.h"

#include <ATen/Parallel.h>

#include <cmath>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"
#include "train/footprint.h"
#include "train/memory.h"
#include "train/script.h"
#include "train/snapshot.h"
#include "train/train.h"

namespace sumpter {
namespace {

std::shared_ptr<const LoadedCheckpoint> newest_checkpoint(const CheckpointOptions& options,
                                                          const std::optional<CheckpointFolder>& folder) {
  if (!options.resume) {
    if (folder && !folder->empty())
      raise<RequestError>(
          "{} has checkpoints already: give --resume to go on from the newest, or name another "
          "directory",
          options.directory.string());
    return nullptr;
  }
  auto newest = folder->newest();
  if (newest) return std::make_shared<const LoadedCheckpoint>(*std::move(newest));
  log::info("no checkpoint in {} yet: beginning with the first step", options.directory.string());
  return nullptr;
}

std::vector<std::unique_ptr<Network>> make_networks(const Job& job, const Plan& plan) {
  std::vector<std::unique_ptr<Network>> networks;
  try {
    for (int rank = 0; rank < plan.replicas; ++rank) networks.push_back(job.make_network());
    unify(networks, plan.update);
  } catch (const c10::Error& error) {
    raise<Error>("{} replicas of the model cannot be made: {}", plan.replicas,
                 in_one_line(error.what_without_backtrace()));
  }
  return networks;
}

std::unique_ptr<Trace> make_trace(const TraceOptions& options) {
  if (options.file.empty()) return nullptr;
  auto trace = std::make_unique<Trace>();
  trace->record(false);
  return trace;
}

// The same error, its message told with the replica's number. Errors of the data and of the exchange name their place.
[[noreturn]] void rethrow_of_replica(const std::exception_ptr& error, int rank, bool begun) {
  try {
    std::rethrow_exception(error);
  } catch (const DataError&) {
    throw;
  } catch (const ExchangeError&) {
    throw;
  } catch (const RequestError& known) {
    if (begun) raise<Error>("replica {}: {}", rank, known.what());
    raise<RequestError>("replica {}: {}", rank, known.what());
  } catch (const SystemError& known) {
    raise<SystemError>("replica {}: {}", rank, known.what());
  } catch (const c10::Error& known) {
    raise<Error>("replica {}: torch: {}", rank, in_one_line(known.what_without_backtrace()));
  } catch (...) {
    raise<Error>("replica {}: {}", rank, in_one_line(describe(error)));
  }
}

}  // namespace

Run::Run(Job run_job, const RunOptions& run_options, TrainListener& run_listener, const std::atomic<bool>& wish_to_stop)
    : job(std::move(run_job)),
      options(run_options),
      listener(run_listener),
      stop(wish_to_stop),
      steps_per_epoch(sumpter::steps_per_epoch(options)),
      steps(steps_of(options)),
      checkpoints(options.checkpoint.directory.empty()
                      ? std::nullopt
                      : std::make_optional<CheckpointFolder>(options.checkpoint.directory, options.checkpoint.keep)),
      loaded(static_cast<std::size_t>(options.plan.replicas), newest_checkpoint(options.checkpoint, checkpoints)),
      first_step(loaded.front() == nullptr ? 0 : loaded.front()->step),
      networks(make_networks(job, options.plan)),
      trace(make_trace(options.trace)),
      context(make_context(*networks.front(), {.plan = options.plan,
                                               .optimizer = options.optimizer,
                                               .schedule = options.schedule,
                                               .precision = options.precision,
                                               .trace = trace.get()})),
      group({.members = options.plan.replicas,
             .piece = options.plan.piece,
             .reducers = options.plan.reducers,
             .trace = trace.get()}),
      ring(options.data.train, {.replicas = options.plan.replicas,
                                .batch_size = options.batch_size,
                                .seed = options.seed,
                                .preload = options.plan.preload,
                                .first_step = first_step,
                                .steps = steps - std::min(steps, first_step),
                                .trace = trace.get()}),
      exchanges(networks.size()),
      snapshots(networks.size()),
      outcomes(networks.size()) {
  reports.fill(std::vector<ReplicaReport>(networks.size()));
  result.first_step = result.steps = first_step;
  if (checkpoints) facts = facts_of(*this);
  if (loaded.front() != nullptr) {
    go_on_from(*loaded.front());
  } else if (!options.initial_weights.empty()) {
    load_initial_weights(*this, options.initial_weights);
  }
  result.memory = footprint_of(*this);
}

void Run::go_on_from(const LoadedCheckpoint& checkpoint) {
  if (first_step > steps)
    raise<RequestError>("{} has done {} steps, and this run has {}: give it more, or another directory",
                        checkpoint.directory.string(), first_step, steps);
  restore_shared(*this, checkpoint);
  const bool ends_epoch = first_step % steps_per_epoch == 0 || first_step == steps;
  evaluation_is_missing = ends_epoch && !checkpoint.progress.value("evaluated", false);
  log::info("going on from {}", checkpoint.directory.string());
}

RunResult Run::run() {
  run_threads();
  write_trace();
  rethrow();
  if (!options.go_on_when_not_finite && !std::isfinite(result.loss))
    raise<Error>(
        "the loss of step {} is {}: training ended there, and nothing of it was written. A smaller learning "
        "rate (it was {:g}), warm-up or clipping may help; --allow-nonfinite goes on all the same",
        result.steps - 1, result.loss, options.optimizer.learning_rate);
  if (!options.go_on_when_not_finite && !has_finite_weights(*this))
    raise<Error>(
        "the update of step {} left parameters that are not finite: nothing of it was written. A smaller "
        "learning rate (it was {:g}), warm-up or clipping may help; --allow-nonfinite goes on all the same",
        result.steps - 1, options.optimizer.learning_rate);
  count();
  if (!options.digest && options.weights.empty()) return result;
  const std::vector<NamedArray> arrays = weights_of(*this, snapshots.front().extras);
  if (options.digest) result.digest = digest(arrays);
  if (!options.weights.empty()) write_safetensors(arrays, options.weights);
  return result;
}

void Run::run_threads() {
  std::vector<std::jthread> threads;
  try {
    while (threads.size() < networks.size())
      threads.emplace_back([this, rank = static_cast<int>(threads.size())] { run_replica(rank); });
  } catch (...) {  // no more threads: those that there are would wait for the others
    fail(static_cast<int>(threads.size()), std::current_exception());
  }
}

void Run::run_replica(int rank) {
  // Ends after fail(): its own end in the middle of a step makes the others raise too, and their errors are not the
  // first.
  std::optional<Worker> worker;
  try {
    name_this_thread(fmt::format("replica {}", rank));
    at::set_num_threads(options.threads_per_replica);
    auto& exchange = exchanges[static_cast<std::size_t>(rank)];
    exchange.emplace(group.join(rank));
    worker.emplace(*this, rank, *exchange);
    worker->train();
  } catch (...) {
    fail(rank, std::current_exception());
  }
}

void Run::fail(int rank, std::exception_ptr error) {
  {
    const std::lock_guard lock(mutex_);
    if (error_ == nullptr) {
      error_ = error;
      culprit_ = rank;
    }
  }
  group.abort(rank, describe(error));
  ring.stop();
}

void Run::rethrow() const {
  if (error_ != nullptr) rethrow_of_replica(error_, culprit_, /*begun=*/result.rows > 0);
}

void Run::write_trace() const {
  if (!trace) return;
  if (trace->dropped() > 0)
    log::warning("the trace is full: {} events were left out; trace fewer steps", trace->dropped());
  try {
    trace->write(options.trace.file);
  } catch (const SystemError& error) {  // must not hide how the run ended
    log::error("the trace was not written: {}", error.what());
  }
}

void Run::count() {
  const auto replicas = static_cast<double>(outcomes.size());
  for (const ReplicaOutcome& outcome : outcomes) {
    result.share_exchange += outcome.share_exchange / replicas;
    result.share_input += outcome.share_input / replicas;
    result.overflows += outcome.overflows;
  }
  const auto add = [&](const WorkerCounters& worker, std::vector<std::uint64_t>& pieces) {
    pieces.push_back(worker.pieces);
    result.pieces += worker.pieces;
    result.bytes += worker.bytes;
  };
  for (const auto& exchange : exchanges) add(exchange->counters().own, result.pieces_of_replicas);
  for (const WorkerCounters& reducer : group.reducer_counters()) add(reducer, result.pieces_of_reducers);
  for (const ParameterInfo& parameter : context->parameters()) result.parameters += parameter.count;
  result.chunks_per_step = context->chunks().size();
  result.chunks = outcomes.front().chunks;
  result.most_batches_ready = ring.counters().ready_most;
}

}  // namespace sumpter
