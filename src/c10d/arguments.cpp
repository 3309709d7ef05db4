#include "c10d/arguments.h"

namespace sumpter {

const at::Tensor& the_one(const char* operation, const Tensors& tensors) {
  TORCH_CHECK_VALUE(tensors.size() == 1, "sumpter: ", operation, " takes one tensor of each rank, not ",
                    tensors.size());
  check_tensor(operation, tensors.front());
  return tensors.front();
}

void check_same_type(const char* operation, const at::Tensor& a, const at::Tensor& b) {
  TORCH_CHECK_VALUE(a.scalar_type() == b.scalar_type(), "sumpter: ", operation, ": tensors of ", a.scalar_type(),
                    " and ", b.scalar_type(), "; all of them need one type");
}

void check_list(const char* operation, const Tensors& list, const at::Tensor& model, int size) {
  TORCH_CHECK_VALUE(list.size() == static_cast<std::size_t>(size), "sumpter: ", operation, ": a list of ", list.size(),
                    " tensors; the group has ", size, " ranks");
  for (const at::Tensor& tensor : list) {
    check_tensor(operation, tensor);
    check_same_type(operation, tensor, model);
    TORCH_CHECK_VALUE(tensor.numel() == model.numel(), "sumpter: ", operation, ": tensors of ", tensor.numel(), " and ",
                      model.numel(), " elements; all of them need one size");
  }
}

void check_blocks(const char* operation, const Tensors& wholes, const Tensors& blocks, int size) {
  TORCH_CHECK_VALUE(wholes.size() == blocks.size() && !wholes.empty(), "sumpter: ", operation, ": ", wholes.size(),
                    " tensors of all ranks and ", blocks.size(), " of one");
  for (std::size_t i = 0; i < wholes.size(); ++i) {
    check_tensor(operation, wholes[i]);
    check_tensor(operation, blocks[i]);
    check_same_type(operation, wholes[i], blocks[i]);
    TORCH_CHECK_VALUE(wholes[i].numel() == blocks[i].numel() * size, "sumpter: ", operation, ": a tensor of ",
                      wholes[i].numel(), " elements for ", size, " ranks with ", blocks[i].numel(), " each");
  }
}

void check_root(const char* operation, std::int64_t root, int size) {
  TORCH_CHECK_VALUE(root >= 0 && root < size, "sumpter: ", operation, ": rank ", root, " of a group of ", size);
}

Tensors dense_ones(const Tensors& tensors) {
  Tensors list;
  list.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) list.push_back(dense(tensor));
  return list;
}

std::vector<Output> outputs_of(const char* operation, const Tensors& tensors, Output::Content content) {
  std::vector<Output> outputs;
  outputs.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) outputs.emplace_back(operation, tensor, content);
  return outputs;
}

Tensors flats(const std::vector<Output>& outputs) {
  Tensors list;
  list.reserve(outputs.size());
  for (const Output& output : outputs) list.push_back(output.flat());
  return list;
}

void deliver_all(const std::vector<Output>& outputs) {
  for (const Output& output : outputs) output.deliver();
}

}  // namespace sumpter
