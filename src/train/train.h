// Training runs of built-in models and TorchScript files, for the command. Free of torch.
#pragma once

#include <atomic>

#include "sumpter/train.h"
#include "train/catalogue.h"

namespace sumpter {

// Batches of an epoch, and steps of the whole run. The data is there, the batch size 1 or more. Throws RequestError
// where there are more steps than can be counted.
std::uint64_t steps_per_epoch(const RunOptions& options);
std::uint64_t steps_of(const RunOptions& options);

// Trains with plan.replicas threads, and evaluates after each epoch and at the end; blocks until that is done. `stop`
// may be set from anywhere, a signal handler too: the step under way is finished, a checkpoint and weights are written,
// nothing is evaluated. Throws RequestError before anything has begun, DataError from the data, Error where the loss is
// not finite (nothing is written then), and what a replica threw, with its rank. The process's malloc and torch's
// default random generator are set for training.
RunResult train(const ModelSpec& model, const RunOptions& options, TrainListener& listener,
                const std::atomic<bool>& stop);

}  // namespace sumpter
