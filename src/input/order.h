// Which rows a step uses. The order of an epoch is a permutation of all rows that depends on seed and epoch alone; it
// is cut into batches, the last of which has what remains. So every row is used once per epoch, and a run can start at
// any step.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "input/split.h"

namespace sumpter {

struct OrderOptions {
  std::size_t rows = 0;        // of the data set, at least 1
  std::size_t batch_size = 0;  // rows of a batch over all replicas, at least 1
  std::uint64_t seed = 0;
  bool shuffle = true;  // false: 0, 1, 2, ... in every epoch
};

// Where in the data a step stands.
struct Position {
  std::uint64_t epoch = 0;
  std::size_t batch = 0;  // of the epoch
  RowRange range;         // of the epoch's order
};

// Any thread may call any function, several at a time.
class BatchOrder {
 public:
  // Throws RequestError where rows or batch_size is 0.
  explicit BatchOrder(const OrderOptions& options);

  std::size_t batches_per_epoch() const { return batches_per_epoch_; }
  Position position(std::uint64_t step) const;

  // The epoch's permutation of 0 to rows - 1. Those of two neighbouring epochs are kept, others are made anew.
  std::shared_ptr<const std::vector<std::size_t>> permutation(std::uint64_t epoch) const;

 private:
  struct Kept {
    std::uint64_t epoch = 0;
    std::shared_ptr<const std::vector<std::size_t>> permutation;
  };

  std::vector<std::size_t> make_permutation(std::uint64_t epoch) const;

  const OrderOptions options_;
  const std::size_t batches_per_epoch_;
  mutable std::mutex mutex_;
  mutable std::array<Kept, 2> kept_;  // of an even and of an odd epoch
};

}  // namespace sumpter
