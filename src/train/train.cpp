#include "train/train.h"

#include "train/job.h"
#include "train/memory.h"

namespace sumpter {

RunResult train(const ModelSpec& model, const RunOptions& options, TrainListener& listener,
                const std::atomic<bool>& stop) {
  check(options);
  keep_freed_memory();
  return Run(job_of(model, options), options, listener, stop).run();
}

}  // namespace sumpter
