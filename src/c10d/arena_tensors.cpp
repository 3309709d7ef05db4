#include "c10d/arena_tensors.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>

namespace sumpter {
namespace {

constexpr std::size_t kMostKept = 8;  // blocks of scratch without a use

}  // namespace

at::Tensor ArenaTensors::allocate(std::int64_t count, const at::TensorOptions& options) {
  // Complex gradients lie in a bucket as pairs of real numbers, which is how DistributedDataParallel reads it.
  if (c10::isComplexType(options.dtype().toScalarType())) {
    return allocate(2 * count, options.dtype(c10::toRealValueType(options.dtype().toScalarType())));
  }
  const std::size_t bytes = static_cast<std::size_t>(count) * options.dtype().itemsize();
  auto memory = std::make_shared<SharedMemory>(exchange_.allocate(std::max<std::size_t>(bytes, 1)));
  use_->bytes.fetch_add(bytes);
  use_->made.fetch_add(1);
  const auto release = [memory, use = use_, bytes](void*) mutable {
    use->bytes.fetch_sub(bytes);
    memory.reset();
  };
  return at::from_blob(memory->data(), {count}, release, options);
}

std::shared_ptr<SharedMemory> ArenaTensors::scratch(std::size_t bytes) {
  SharedMemory memory;
  {
    const std::lock_guard lock(pool_->mutex);
    auto& free = pool_->free;
    const auto best = std::min_element(free.begin(), free.end(), [&](const SharedMemory& a, const SharedMemory& b) {
      const auto cost = [&](const SharedMemory& block) {
        return block.bytes() < bytes ? ~std::size_t{0} : block.bytes();
      };
      return cost(a) < cost(b);
    });
    if (best != free.end() && best->bytes() >= bytes) {
      memory = std::move(*best);
      free.erase(best);
    }
  }
  if (memory.data() == nullptr) memory = exchange_.allocate(bytes);
  return {new SharedMemory(std::move(memory)), [pool = pool_](SharedMemory* used) {
            const std::unique_ptr<SharedMemory> owner(used);
            const std::lock_guard lock(pool->mutex);
            if (pool->free.size() < kMostKept) pool->free.push_back(std::move(*owner));
          }};
}

}  // namespace sumpter
