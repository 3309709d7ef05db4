// Text as a data set: windows of bytes, for models that predict the next byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>

#include "sumpter/input.h"

namespace sumpter {

struct TextOptions {
  std::size_t context = 128;  // bytes that a prediction may look at, 1 to 2^30
  double test_share = 0.1;    // of the text, from its end; 0 to below 1, 0: no test set
  std::uint64_t seed = 0;     // of the shifts
};

// The bytes of a file, or of all regular files of a directory, in the order of their names, one after another with
// nothing between them; links and directories inside it are passed over. Held in memory.
//
// An item is context + 1 bytes: item i begins at byte i * context, so that its last byte, which is only predicted, is
// the next item's first. Shape 1 x 1 x (context + 1), 256 classes, every label 0. In each epoch all windows of the
// training set begin a number of bytes later that is drawn, below `context`, from seed and epoch; those of the test set
// stay. Throws DataError where a file cannot be read or there is no text; RequestError where an option is out of range,
// or the text too short for one window in each set.
DatasetPair open_text(const std::filesystem::path& path, const TextOptions& options = {});

}  // namespace sumpter
