// For the comparison with torchvision (test_torchvision.py): runs a built-in model once on weights and rows from a
// file.
//   model_probe MODEL CLASSES IN.safetensors OUT.safetensors
// IN has the state_dict and two arrays more, "values" and "labels". OUT has "scores" (in evaluation), then of a
// training step: "loss", "gradient.NAME", and "state.NAME" after it. Prints the names of the model's state in its
// order.
#include <torch/types.h>

#include <cstdlib>
#include <cstring>
#include <iostream>
#include <vector>

#include "base/error.h"
#include "train/models/model.h"
#include "train/network.h"
#include "train/weights.h"

namespace sumpter {
namespace {

ElementType type_of(const torch::Tensor& tensor) {
  return tensor.scalar_type() == torch::kInt64 ? ElementType::i64 : ElementType::f32;
}

void load(const SafetensorsFile& file, const NamedTensor& entry) {
  const NamedArray* array = file.find(entry.name);
  if (array == nullptr || array->shape != entry.tensor.sizes().vec() || array->type != type_of(entry.tensor))
    raise<DataError>("no array {} of the model's shape and type", entry.name);
  std::memcpy(entry.tensor.mutable_data_ptr(), array->bytes.data(), array->bytes.size());
}

torch::Tensor tensor_of(const SafetensorsFile& file, std::string_view name) {
  const NamedArray* array = file.find(name);
  if (array == nullptr) raise<DataError>("no array {}", name);
  torch::Tensor tensor = torch::empty(array->shape, array->type == ElementType::i64 ? torch::kInt64 : torch::kFloat32);
  std::memcpy(tensor.mutable_data_ptr(), array->bytes.data(), array->bytes.size());
  return tensor;
}

// Tensors with names, kept while a file is written from them.
class Output {
 public:
  void add(std::string name, const torch::Tensor& tensor) {
    kept_.push_back(tensor.detach().contiguous());
    const torch::Tensor& kept = kept_.back();
    arrays_.push_back({std::move(name),
                       type_of(kept),
                       kept.sizes().vec(),
                       {static_cast<const std::byte*>(kept.const_data_ptr()), kept.nbytes()}});
  }
  void write(const std::filesystem::path& file) const { write_safetensors(arrays_, file); }

 private:
  std::vector<torch::Tensor> kept_;
  std::vector<NamedArray> arrays_;
};

void probe(const ModelSpec& spec, const SafetensorsFile& in, const std::filesystem::path& out) {
  // Dropout draws other numbers than torchvision's.
  const auto network = make_network(spec, {.use_dropout = false});
  const std::vector<NamedTensor> state = network->state();
  for (const NamedTensor& entry : state) {
    std::cout << entry.name << '\n';
    load(in, entry);
  }
  const torch::Tensor values = tensor_of(in, "values"), labels = tensor_of(in, "labels");
  const torch::Tensor scores = network->scores(values);
  const torch::Tensor loss = network->loss(values, labels);
  loss.backward();
  Output output;
  for (const NamedTensor& entry : state) output.add("state." + entry.name, entry.tensor);
  for (const NamedTensor& entry : state)
    if (entry.trains) output.add("gradient." + entry.name, entry.tensor.grad());
  output.add("loss", loss);
  output.add("scores", scores);
  output.write(out);
}

}  // namespace
}  // namespace sumpter

int main(int argc, char** argv) {
  if (argc != 5) {
    std::cerr << "usage: model_probe MODEL CLASSES IN.safetensors OUT.safetensors\n";
    return 2;
  }
  try {
    const sumpter::ModelSpec spec = sumpter::parse_model(argv[1], "MODEL").with_classes(std::atoll(argv[2]));
    sumpter::probe(spec, sumpter::SafetensorsFile::read(argv[3]), argv[4]);
  } catch (const std::exception& error) {
    std::cerr << "model_probe: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
