// A data set made up from a seed, for tests, benchmarks and machines without data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "input/dataset.h"

namespace sumpter {

struct SyntheticOptions {
  std::size_t rows = 60'000;
  ImageShape shape{.channels = 3, .height = 32, .width = 32};
  int classes = 10;
  std::uint64_t seed = 0;
  // The number of the first item: sets with the same seed and other items show the same classes, as a training set and
  // its test set do.
  std::uint64_t first_item = 0;
};

// Each class has a pattern of blocks; an image is the mean of its class's pattern and of noise of its own, so that a
// model can learn to tell them apart. Image and label depend on the seed and the item's number alone. Takes no memory.
// Throws RequestError where rows, classes or a side of the shape is 0, or an image has more than 1 GiB.
std::shared_ptr<const Dataset> make_synthetic(const SyntheticOptions& options);

}  // namespace sumpter
