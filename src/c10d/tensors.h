// Tensors of any layout as the flat arrays that an exchange takes.
#pragma once

#include <ATen/core/Tensor.h>

#include "sumpter/exchange.h"

namespace sumpter {

// Throws ValueError, naming the operation, where the tensor is not a dense one on the CPU.
void check_tensor(const char* operation, const at::Tensor& tensor);

// The elements in order, in one piece of memory: the tensor itself where they lie so, else a copy.
at::Tensor dense(const at::Tensor& tensor);

// A tensor that an operation writes: `flat` is written, then deliver() brings it where the caller wants it. Expanded
// dimensions (stride 0) are written once. Throws ValueError, naming the layout, where elements overlap otherwise.
class Output {
 public:
  enum class Content { kept, ignored };  // whether the operation reads what is there
  Output(const char* operation, const at::Tensor& tensor, Content content);
  const at::Tensor& flat() const { return flat_; }
  const at::Tensor& tensor() const { return tensor_; }
  void deliver() const;

 private:
  at::Tensor tensor_, flat_;
};

// The bytes of a contiguous tensor as a part of an operation that does no arithmetic: of its own type where the
// exchange has it, so that members compare types; else of bytes.
struct Bytes {
  Part part;
  ElementType type;
};
Bytes bytes_of(const at::Tensor& flat);

}  // namespace sumpter
