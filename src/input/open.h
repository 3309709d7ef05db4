// Data sets by the text that a person gives.
#pragma once

#include <string_view>

#include "input/dataset.h"

namespace sumpter {

struct OpenOptions {
  int classes = 10;  // of data sets whose files do not say it; the default of synthetic ones
  ImageShape synthetic_shape{.channels = 3, .height = 32, .width = 32};  // where the text gives none
};

// "synthetic", or "synthetic:key=value,..." with rows, test_rows (0: no test set), shape (CxHxW), classes, seed;
// a directory with IDX files (train-images-idx3-ubyte, ...); or the images file of one IDX set, whose labels are looked
// for beside it: then there is no test set. Throws RequestError where the text is none of these, saying what was looked
// for, and DataError where the files are damaged.
DatasetPair open_dataset(std::string_view text, const OpenOptions& options = {});

}  // namespace sumpter
