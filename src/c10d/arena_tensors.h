// Tensors born in the arena, where every member reads them in place: DDP's buckets, and scratch of our own.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "sumpter/exchange.h"

namespace sumpter {

class ArenaTensors {
 public:
  explicit ArenaTensors(Exchange& exchange) : exchange_(exchange) {}

  // One dimension of `count` elements, zeroed. Its memory returns to the arena with the last tensor that uses it, which
  // may be after the group's end. Throws SystemError.
  at::Tensor allocate(std::int64_t count, const at::TensorOptions& options);
  // Bytes of allocate()'s tensors that are in use, and how many it has made.
  std::size_t bytes() const { return use_->bytes.load(); }
  std::uint64_t made() const { return use_->made.load(); }

  // Memory for an operation's own use, not zeroed; kept for the next when the last owner lets it go.
  std::shared_ptr<SharedMemory> scratch(std::size_t bytes);

 private:
  struct Use {
    std::atomic<std::size_t> bytes{0};
    std::atomic<std::uint64_t> made{0};
  };
  struct Pool {
    std::mutex mutex;
    std::vector<SharedMemory> free;
  };

  Exchange& exchange_;
  std::shared_ptr<Use> use_ = std::make_shared<Use>();
  std::shared_ptr<Pool> pool_ = std::make_shared<Pool>();
};

}  // namespace sumpter
