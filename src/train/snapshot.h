// What a checkpoint holds of a run, and putting it back.
#pragma once

#include <nlohmann/json.hpp>

#include "train/run.h"

namespace sumpter {

// What a run that goes on must agree with: whatever changes its bits.
nlohmann::ordered_json facts_of(const Run& run);

// The final numbers, or those of the last finished step, as a state_dict has them: parameters, and rank 0's buffers as
// `extras` has them. Views of memory that the run and `extras` hold.
std::vector<NamedArray> weights_of(Run& run, const ReplicaExtras& extras);

// Whether the parameters are numbers. Of the first replica.
bool has_finite_weights(const Run& run);

// A checkpoint of `steps` finished steps, made of the snapshots of all replicas. False, and a warning, where the
// numbers are not finite: they would push out checkpoints that are. Throws SystemError.
bool save_checkpoint(Run& run, std::uint64_t steps, bool best);

// While no replica has begun. From a file of weights alone; throws RequestError, DataError.
void load_initial_weights(Run& run, const std::filesystem::path& file);
// What all replicas share: parameters and, with update=host, the optimizer's state. Throws RequestError where the
// checkpoint does not fit the run.
void restore_shared(Run& run, const LoadedCheckpoint& loaded);
// What is one replica's own, from a checkpoint; by its thread.
void restore_replica(const LoadedCheckpoint& loaded, int rank, Network& network, ReplicaStep& step,
                     bool default_generator);

}  // namespace sumpter
