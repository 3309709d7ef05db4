// From what a person asks for to a run: the checks that need no replica, and the jobs of built-in models, scripts and
// modules of the user's own.
#pragma once

#include <atomic>

#include "sumpter/trainer.h"
#include "train/catalogue.h"
#include "train/run.h"

namespace sumpter {

// Throws RequestError, naming what is out of range or does not go together.
void check(const RunOptions& options);

Job job_of(const ModelSpec& model, const RunOptions& options);
Job job_of(const ModelFactory& factory, const LossFunction& loss, const RunOptions& options);

}  // namespace sumpter
