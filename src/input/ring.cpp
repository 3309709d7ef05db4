#include "input/ring.h"

#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/thread.h"
#include "input/ring_state.h"

namespace sumpter {

Batch::Batch(Batch&& other) noexcept { *this = std::move(other); }

Batch& Batch::operator=(Batch&& other) noexcept {
  if (this == &other) return *this;
  release();
  step_ = other.step_;
  epoch_ = other.epoch_;
  batch_in_epoch_ = other.batch_in_epoch_;
  all_rows_ = other.all_rows_;
  images_ = std::exchange(other.images_, {});
  labels_ = std::exchange(other.labels_, {});
  rank_ = other.rank_;
  ring_ = std::move(other.ring_);
  return *this;
}

Batch::~Batch() { release(); }

void Batch::release() {
  images_ = {};
  labels_ = {};
  if (const auto ring = std::exchange(ring_, nullptr)) ring->release(step_, rank_);
}

BatchRing::BatchRing(std::shared_ptr<const Dataset> dataset, const RingOptions& options)
    : state_(std::make_shared<RingState>(std::move(dataset), options)) {
  try {
    for (int loader = 0; loader < state_->loaders(); ++loader) {
      loaders_.emplace_back([state = state_, loader] {
        name_this_thread(fmt::format("input {}", loader));
        state->run_loader(static_cast<std::size_t>(loader));
      });
    }
  } catch (const std::system_error& error) {
    state_->stop();  // the threads that exist are joined
    raise<SystemError>("input: loader thread {} of {} could not be started: {}", loaders_.size(), state_->loaders(),
                       error.what());
  }
}

BatchRing::~BatchRing() { stop(); }

std::optional<Batch> BatchRing::next(int rank) {
  // The ring may be destroyed while a replica waits.
  const std::shared_ptr<RingState> state = state_;
  return state->next(rank);
}

void BatchRing::stop() { state_->stop(); }

std::size_t BatchRing::batches_per_epoch() const { return state_->order().batches_per_epoch(); }
int BatchRing::preload() const { return static_cast<int>(state_->slots()) - 1; }
std::size_t BatchRing::bytes() const { return state_->bytes(); }
RingCounters BatchRing::counters() const { return state_->counters(); }

}  // namespace sumpter
