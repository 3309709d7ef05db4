// What torch hands to a collective: checked, and as flat tensors. Errors are ValueError and name the operation.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>

#include <vector>

#include "c10d/tensors.h"

namespace sumpter {

using Tensors = std::vector<at::Tensor>;

// Below autograd, as torch's own backends work: tensors may be parameters.
using NoAutograd = at::AutoDispatchBelowADInplaceOrView;

const at::Tensor& the_one(const char* operation, const Tensors& tensors);
void check_same_type(const char* operation, const at::Tensor& a, const at::Tensor& b);
// A list with a tensor for each rank, all like `model`.
void check_list(const char* operation, const Tensors& list, const at::Tensor& model, int size);
// Pairs of a tensor of all ranks and one of a single rank.
void check_blocks(const char* operation, const Tensors& wholes, const Tensors& blocks, int size);
void check_root(const char* operation, std::int64_t root, int size);

Tensors dense_ones(const Tensors& tensors);
std::vector<Output> outputs_of(const char* operation, const Tensors& tensors, Output::Content content);
Tensors flats(const std::vector<Output>& outputs);
void deliver_all(const std::vector<Output>& outputs);

}  // namespace sumpter
