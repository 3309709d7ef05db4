#include "train/run.h"

#include <ATen/Parallel.h>

#include "base/error.h"
#include "base/thread.h"

namespace sumpter {
namespace {

std::uint64_t batches(const TrainOptions& options) { return (options.data.train->size() - 1) / options.batch_size + 1; }

std::uint64_t steps_of(const TrainOptions& options) {
  if (options.steps != 0) return options.steps;
  std::uint64_t steps = 0;
  if (__builtin_mul_overflow(options.epochs, batches(options), &steps))
    raise<RequestError>("{} epochs of {} steps are more steps than can be counted", options.epochs, batches(options));
  return steps;
}

RingOptions ring_options(const TrainOptions& options, std::uint64_t steps) {
  return {.replicas = options.plan.replicas,
          .batch_size = options.batch_size,
          .seed = options.seed,
          .preload = options.plan.preload,
          .steps = steps};
}

// The same error, its message told with the replica's number. Errors of the data and of the exchange name their place.
[[noreturn]] void rethrow_of_replica(const std::exception_ptr& error, int rank) {
  try {
    std::rethrow_exception(error);
  } catch (const DataError&) {
    throw;
  } catch (const ExchangeError&) {
    throw;
  } catch (const RequestError& known) {
    raise<RequestError>("replica {}: {}", rank, known.what());
  } catch (const SystemError& known) {
    raise<SystemError>("replica {}: {}", rank, known.what());
  } catch (const c10::Error& known) {
    raise<Error>("replica {}: torch: {}", rank, known.what_without_backtrace());
  } catch (const std::exception& known) {
    raise<Error>("replica {}: {}", rank, known.what());
  }
}

}  // namespace

Run::Run(const TrainOptions& run_options, TrainListener& run_listener, const std::atomic<bool>& wish_to_stop)
    : options(run_options),
      listener(run_listener),
      stop(wish_to_stop),
      steps_per_epoch(batches(options)),
      steps(steps_of(options)),
      models(make_models(options.model, options.seed, options.plan)),
      context(make_context(*models.front(), options.plan, options.optimizer)),
      group({.members = options.plan.replicas, .piece = options.plan.piece, .reducers = options.plan.reducers}),
      ring(options.data.train, ring_options(options, steps)),
      exchanges(models.size()),
      outcomes(models.size()) {
  reports.fill(std::vector<ReplicaReport>(models.size()));
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
  if (error_ != nullptr) rethrow_of_replica(error_, culprit_);
}

}  // namespace sumpter
