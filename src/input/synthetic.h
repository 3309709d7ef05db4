// Data sets made up from a seed, for tests, benchmarks and machines without data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "sumpter/input.h"

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

struct SyntheticTextOptions {
  std::size_t rows = 60'000;
  std::size_t context = 128;  // an item has one byte more
  std::uint64_t seed = 0;
  std::uint64_t first_item = 0;  // as above
};

// Lines of text in which each byte is followed by one of four, with the same probability: a model that has learnt which
// ones has a loss of ln 4 = 1.386, one that has not of ln 64 = 4.159 (the bytes that occur) or ln 256. Shaped as
// open_text's items. Depends on seed and item alone; takes no memory. Throws RequestError where rows or context is 0,
// or too large.
std::shared_ptr<const Dataset> make_synthetic_text(const SyntheticTextOptions& options);

}  // namespace sumpter
