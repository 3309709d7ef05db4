#include "c10d/tensors.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>

#include "c10d/types.h"

namespace sumpter {
namespace {

bool lies_in_order(const at::Tensor& tensor) { return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg(); }

// Every element once: one of each expanded dimension.
at::Tensor without_expansion(at::Tensor tensor) {
  for (std::int64_t dim = 0; dim < tensor.dim(); ++dim) {
    if (tensor.stride(dim) == 0 && tensor.size(dim) > 1) tensor = tensor.narrow(dim, 0, 1);
  }
  return tensor;
}

}  // namespace

void check_tensor(const char* operation, const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(tensor.defined(), "sumpter: ", operation, ": an undefined tensor");
  TORCH_CHECK_VALUE(tensor.layout() == at::kStrided, "sumpter: ", operation, ": a tensor of layout ", tensor.layout(),
                    "; dense ones are exchanged");
  TORCH_CHECK_VALUE(tensor.device().is_cpu(), "sumpter: ", operation, ": a tensor on ", tensor.device(),
                    "; this version exchanges tensors on the cpu");
}

at::Tensor dense(const at::Tensor& tensor) {
  return lies_in_order(tensor) ? tensor : tensor.resolve_conj().resolve_neg().contiguous();
}

Output::Output(const char* operation, const at::Tensor& tensor, Content content) : tensor_(tensor), flat_(tensor) {
  check_tensor(operation, tensor);
  if (lies_in_order(tensor)) return;
  TORCH_CHECK_VALUE(at::has_internal_overlap(without_expansion(tensor)) != at::MemOverlap::Yes, "sumpter: ", operation,
                    ": elements of the tensor overlap (sizes ", tensor.sizes(), ", strides ", tensor.strides(),
                    "): clone it first");
  flat_ = content == Content::kept
              ? dense(tensor)
              : at::empty(tensor.sizes(), tensor.options().memory_format(at::MemoryFormat::Contiguous));
}

void Output::deliver() const {
  if (flat_.is_same(tensor_)) return;
  // Below autograd: the tensor may be a parameter, or one of inference mode.
  const at::AutoDispatchBelowADInplaceOrView guard;
  at::Tensor source = flat_;
  for (std::int64_t dim = 0; dim < tensor_.dim(); ++dim) {
    if (tensor_.stride(dim) == 0 && tensor_.size(dim) > 1) source = source.narrow(dim, 0, 1);
  }
  without_expansion(tensor_).copy_(source);
}

Bytes bytes_of(const at::Tensor& flat) {
  if (const auto type = element_type(flat.scalar_type())) {
    return {{flat.data_ptr(), static_cast<std::size_t>(flat.numel())}, *type};
  }
  return {{flat.data_ptr(), flat.nbytes()}, ElementType::u8};
}

}  // namespace sumpter
