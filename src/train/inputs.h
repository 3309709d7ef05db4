// Rows of a data set as tensors that a model takes.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <span>

#include "sumpter/input.h"
#include "sumpter/spec.h"
#include "train/catalogue.h"

namespace sumpter {

// Rows as the host has them.
struct Rows {
  std::span<const std::uint8_t> images;  // the bytes of all rows, one after another
  std::span<const std::int64_t> labels;
  ImageShape shape;                    // of each row
  ElementType type = ElementType::u8;  // of each element: u8 or f32
};

struct InputOptions {
  InputKind kind = InputKind::image;
  std::size_t channels = 0;  // image: as many as the model wants; 0: as they are
  int image_size = 0;        // image: both sides, pixels; 0: as they are
  Precision precision = Precision::float32;
};

// What the model wants, for rows of these elements: float32 rows for a script are raw.
InputOptions input_options(const ModelSpec& spec, ElementType type, int image_size, Precision precision);

struct Inputs {
  torch::Tensor values;  // image, raw: [rows, channels, height, width], float32 (float64 under that precision);
                         // bytes: [rows, positions], int64
  torch::Tensor labels;  // [rows]; bytes: [rows, positions], the byte that follows each; int64
};

// Copies: the rows are not needed afterwards. Bytes of images become (x / 255 - 0.5) / 0.5; one channel is repeated
// where more are wanted; images are resized bilinearly (torch's align_corners=False, antialias=False). Throws
// RequestError where the elements are not what the kind wants.
Inputs to_inputs(const Rows& rows, const InputOptions& options);

}  // namespace sumpter
