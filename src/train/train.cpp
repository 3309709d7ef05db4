#include "train/train.h"

#include "base/error.h"
#include "train/job.h"
#include "train/memory.h"

namespace sumpter {

std::uint64_t steps_per_epoch(const RunOptions& options) {
  return (options.data.train->size() - 1) / options.batch_size + 1;
}

std::uint64_t steps_of(const RunOptions& options) {
  if (options.steps != 0) return options.steps;
  std::uint64_t steps = 0;
  if (__builtin_mul_overflow(options.epochs, steps_per_epoch(options), &steps))
    raise<RequestError>("{} epochs of {} steps are more steps than can be counted", options.epochs,
                        steps_per_epoch(options));
  return steps;
}

RunResult train(const ModelSpec& model, const RunOptions& options, TrainListener& listener,
                const std::atomic<bool>& stop) {
  check(options);
  keep_freed_memory();
  return Run(job_of(model, options), options, listener, stop).run();
}

}  // namespace sumpter
