// The memory that a run needs, worked out before its first step and looked at after it.
#pragma once

#include <cstddef>

#include "sumpter/train.h"

namespace sumpter {

class Run;

// Tries the first replica's model on a few rows of zeros to see what a row's activations take; leaves it as it was.
Footprint footprint_of(const Run& run);

// `held`: bytes of gradients and activations that rank 0's first step held at its peak. Warns where they are more than
// a quarter above what the footprint said.
void check_footprint(Run& run, std::size_t held);

}  // namespace sumpter
