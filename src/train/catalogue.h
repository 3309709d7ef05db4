// The models that are built in, by name, and what a name with sizes in it means. Free of torch: the command lists them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "input/dataset.h"

namespace sumpter {

// A model as asked for: "lenet", "mlp", "mlp60m", "mlp:784-512-10".
struct ModelSpec {
  enum class Kind { lenet, mlp };
  Kind kind = Kind::lenet;
  std::vector<std::int64_t> sizes;  // mlp: width of the input, of each hidden layer, of the output
  std::string name;                 // as it was asked for

  // Trainable numbers, known without building the model.
  std::uint64_t parameters() const;
  std::int64_t classes() const;  // width of the output
};

// Throws RequestError that names `what` and the models there are, when the text is none of them or its sizes are not 2
// or more numbers of 1 to 1,048,576.
ModelSpec parse_model(std::string_view text, std::string_view what);

// A shape of image that the model takes, for data that has none of its own: 1x28x28 or 3x32x32 where that fits.
ImageShape usual_shape(const ModelSpec& spec);

struct ModelInfo {
  std::string name;
  std::string input;  // "1x28x28", "3072 values"
  std::string description;
  std::uint64_t parameters = 0;
};
// In the order in which they are listed.
std::vector<ModelInfo> built_in_models();

}  // namespace sumpter
