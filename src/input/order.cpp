#include "input/order.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "input/random.h"

namespace sumpter {
namespace {

const OrderOptions& checked(const OrderOptions& options) {
  if (options.rows == 0) raise<RequestError>("a data set of 0 rows cannot be trained on or tested; give one with rows");
  if (options.batch_size == 0) raise<RequestError>("a batch size of 0 rows was asked for; it must be at least 1");
  return options;
}

}  // namespace

BatchOrder::BatchOrder(const OrderOptions& options)
    : options_(checked(options)), batches_per_epoch_((options.rows - 1) / options.batch_size + 1) {}

Position BatchOrder::position(std::uint64_t step) const {
  const std::size_t batch = step % batches_per_epoch_;
  const std::size_t begin = batch * options_.batch_size;
  return {.epoch = step / batches_per_epoch_,
          .batch = batch,
          .range = {.begin = begin, .rows = std::min(options_.batch_size, options_.rows - begin)}};
}

std::shared_ptr<const std::vector<std::size_t>> BatchOrder::permutation(std::uint64_t epoch) const {
  const std::lock_guard lock(mutex_);
  Kept& kept = kept_[epoch % kept_.size()];
  if (!kept.permutation || kept.epoch != epoch) {
    kept = {.epoch = epoch, .permutation = std::make_shared<const std::vector<std::size_t>>(make_permutation(epoch))};
  }
  return kept.permutation;
}

// Fisher and Yates's shuffle, written out because std::shuffle's result differs between standard libraries.
std::vector<std::size_t> BatchOrder::make_permutation(std::uint64_t epoch) const {
  std::vector<std::size_t> rows(options_.rows);
  std::iota(rows.begin(), rows.end(), std::size_t{0});
  if (!options_.shuffle) return rows;
  Random random(stream_seed(options_.seed, epoch));
  for (std::size_t left = rows.size(); left > 1; --left) std::swap(rows[left - 1], rows[random.below(left)]);
  return rows;
}

}  // namespace sumpter
