// The models that are built in, by name; what a name with sizes in it means; what each wants of its rows. Free of
// torch: the command lists them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "sumpter/train.h"

namespace sumpter {

// A model as asked for: "lenet", "mlp:784-512-10", "resnet18", "gpt:4-128-4-128", "my/model.pt".
struct ModelSpec {
  enum class Kind { lenet, mlp, alexnet, googlenet, vgg16, resnet18, resnet50, resnet152, gpt, script };
  Kind kind = Kind::lenet;
  std::vector<std::int64_t> sizes;  // mlp: width of the input, of each hidden layer, of the output;
                                    // gpt: layers, width, heads, context
  std::string name;                 // as it was asked for
  std::int64_t outputs = 10;        // scores of a row (gpt: of a position); 0 for a script, which does not tell
  std::filesystem::path path;       // script: the TorchScript file

  // Trainable numbers, known without building the model; 0 for a script.
  std::uint64_t parameters() const;
  std::int64_t classes() const { return outputs; }
  // The same model for data of so many classes: the vision models get an output for each, the others keep theirs.
  ModelSpec with_classes(std::int64_t classes) const;
};

// Vision models have 1000 classes until with_classes() says otherwise. Text that ends in .pt or .ts is the path of a
// TorchScript file, which is not looked at. Throws RequestError that names `what` and the models there are, when the
// text is none of them or its sizes are not those that the model needs.
ModelSpec parse_model(std::string_view text, std::string_view what);

enum class InputKind : std::uint8_t {
  image,  // of bytes, which become -1 to 1; float32 images are taken as they are
  bytes,  // of a text: the model predicts each from those before it
  raw     // numbers as the data has them
};

// What a model wants of its rows. A script takes what the data has.
struct InputNeeds {
  InputKind kind = InputKind::image;
  std::size_t channels = 0;       // image: 1, or 3, for which grey is repeated; 0: any
  std::size_t smallest_side = 1;  // image: pixels, of either side
  std::size_t context = 0;        // bytes: the most positions of a row
};
InputNeeds needs_of(const ModelSpec& spec);

// A shape of row that the model takes, for data that has none of its own: an mlp's is 1x28x28 or 3x32x32 where that
// fits; a gpt's is a byte longer than its context, since the last one is predicted only.
ImageShape usual_shape(const ModelSpec& spec);

// Throws RequestError, with what the model wants and what the data has, when they do not fit. image_size: the side to
// which images are resized; 0 leaves them as they are.
void check_input(const ModelSpec& spec, const ImageShape& shape, int classes, int image_size = 0);

struct ModelInfo {
  std::string name;
  std::string input;  // "1x28x28", "3072 values", "3x63x63 or larger", "128 bytes"
  std::string description;
  std::uint64_t parameters = 0;  // for 1000 classes where they depend on the data's
};
// In the order in which they are listed.
std::vector<ModelInfo> built_in_models();

}  // namespace sumpter
