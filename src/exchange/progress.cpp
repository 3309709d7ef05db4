// What drives a member's operations: matching, finishing, the steps of staged ones, the pieces of in-place ones.
#include <algorithm>
#include <optional>

#include "exchange/member.h"
#include "exchange/transfer.h"

namespace sumpter::exchange {
namespace {

constexpr std::uint64_t kIndexMask = (std::uint64_t{1} << kIndexBits) - 1;

bool has_work(std::uint64_t word, std::uint64_t number, std::size_t size) {
  return word >> kIndexBits == number && (word & kIndexMask) < size;
}

// Takes the next piece of a share. Bounded by the share's size and bound to the operation's number: it can neither
// overshoot nor take from an operation that uses the word later. A success proves that the operation is not over.
std::optional<std::size_t> claim(Share& share, std::uint64_t number, std::size_t size) {
  std::uint64_t word = share.claimed.load(std::memory_order_acquire);
  while (has_work(word, number, size)) {
    if (share.claimed.compare_exchange_weak(word, word + 1)) return word & kIndexMask;
  }
  return std::nullopt;
}

// Tells the others, for as long as it lives, that this member may be writing to their memory.
class InFlight {
 public:
  explicit InFlight(Word& word) : word_(word) { word_.value.fetch_add(1); }
  InFlight(const InFlight&) = delete;
  InFlight& operator=(const InFlight&) = delete;
  ~InFlight() { word_.value.fetch_sub(1); }

 private:
  Word& word_;
};

}  // namespace

bool MemberState::progress(Tally& tally, By by) {
  try {
    return step(tally, by);
  } catch (...) {
    fault(std::current_exception());
    return true;
  }
}

bool MemberState::step(Tally& tally, By by) {
  std::shared_ptr<Operation> operation;
  {
    const std::lock_guard lock(mutex_);
    if (aborted(control_) || (by == By::reducer && paused_.load())) return false;
    if (settle(tally) || staged_step(tally)) return true;
    operation = claimable();
  }
  return operation != nullptr && claim_piece(*operation, tally);
}

bool MemberState::posted_by_all(std::uint64_t number) const {
  for (int rank = 0; rank < members(); ++rank) {
    if (control_.descriptor(number, rank).ready.load(std::memory_order_acquire) != number) return false;
  }
  return true;
}

// Matches what everybody has posted and finishes what is done.
bool MemberState::settle(Tally& tally) {
  bool any = false;
  for (std::size_t i = 0; i < queue_.size();) {
    const std::shared_ptr<Operation> operation = queue_[i];
    // Where one is not posted by all, no later one is.
    if (!operation->matched && !match(*operation)) break;
    if (!complete(*operation, tally)) {
      ++i;
      continue;
    }
    finish(operation);
    any = true;
  }
  return any;
}

// True when nothing is left to do for the operation; small ones are done here.
bool MemberState::complete(const Operation& operation, Tally& tally) {
  const auto begin = trace_begin();
  std::size_t bytes = 0;
  switch (operation.way) {
    case Way::in_place:
      return all_shares_done(operation);
    case Way::staged:
      return operation.copied_out == operation.rounds;
    case Way::alone:
      bytes = finish_alone(operation);
      break;
    case Way::small:
      bytes = finish_small(control_, operation, rank_);
      break;
  }
  if (operation.request.reduces()) {
    if (bytes > 0) count(operation, tally, bytes, begin);
  } else {
    copied_out_.fetch_add(bytes, std::memory_order_relaxed);
  }
  return true;
}

bool MemberState::match(Operation& operation) {
  if (!posted_by_all(operation.number)) return false;
  const Descriptor& first = control_.descriptor(operation.number, 0);
  for (int rank = 1; rank < members(); ++rank) {
    if (same_request(first, control_.descriptor(operation.number, rank))) continue;
    abort_group(control_, Fault::mismatch, -1, operation.number,
                describe_mismatch(control_, operation.number, 0, rank));
    return false;
  }
  choose_way(operation);
  operation.matched = true;
  return true;
}

// From compared facts alone: all members choose alike.
void MemberState::choose_way(Operation& operation) {
  const Request& request = operation.request;
  const Extent extent{request.kind, request.count, request.element(), members(), request.root};
  operation.terms = make_terms(control_, operation.number, request);
  if (is_small(request)) {
    operation.way = Way::small;
  } else if (reach_in_place(operation)) {
    operation.way = members() == 1 ? Way::alone : Way::in_place;
    operation.in_place = InPlaceCut(extent, control_.piece());
  } else {
    operation.way = Way::staged;
    operation.staged = StagedCut(extent, control_.piece());
    operation.rounds = operation.staged.rounds();
    operation.first_round = staged_rounds_;
    staged_rounds_ += operation.rounds;
  }
}

// Finds everybody's memory; false when some of it cannot be read by all.
bool MemberState::reach_in_place(Operation& operation) {
  Reach& reach = operation.reach;
  const auto add = [&](std::span<const Part> inputs, std::span<const Part> outputs) {
    reach.inputs.push_back(inputs);
    reach.outputs.push_back(outputs);
  };
  if (one_process_) {
    for (int rank = 0; rank < members(); ++rank) {
      const Request& request = group_->published(operation.number, rank).request;
      add(request.inputs, request.outputs);
    }
    return true;
  }
  for (int rank = 0; rank < members(); ++rank) {
    const Descriptor& descriptor = control_.descriptor(operation.number, rank);
    if (descriptor.input.load() == kPrivate || descriptor.output.load() == kPrivate) return false;
  }
  const auto resolve = [&](Place place, std::size_t count) {
    Part part{nullptr, count};
    if (place != kNowhere) {
      part.data = segments_.resolve(place);
      reach.complete = reach.complete && part.data != nullptr;
    }
    return part;
  };
  reach.owned.reserve(static_cast<std::size_t>(members()));
  for (int rank = 0; rank < members(); ++rank) {
    const Descriptor& descriptor = control_.descriptor(operation.number, rank);
    const Request& request = operation.request;
    const auto& parts = reach.owned.emplace_back(std::vector<Part>{resolve(descriptor.input.load(), request.count),
                                                                   resolve(descriptor.output.load(), request.count)});
    add({parts.data(), 1}, {parts.data() + 1, 1});
  }
  return true;
}

bool MemberState::all_shares_done(const Operation& operation) const {
  for (int rank = 0; rank < members(); ++rank) {
    const std::uint64_t full = operation.number << kIndexBits | operation.in_place.share(rank);
    if (control_.share(operation.number, rank).done.load(std::memory_order_acquire) != full) return false;
  }
  return true;
}

void MemberState::finish(const std::shared_ptr<Operation>& operation) {
  finished_.fetch_add(1, std::memory_order_relaxed);
  auto& by_way = operation->way == Way::small ? small_ : operation->way == Way::staged ? staged_ : in_place_;
  by_way.fetch_add(1, std::memory_order_relaxed);
  queue_.erase(std::find(queue_.begin(), queue_.end(), operation));
  operation->finished.store(true, std::memory_order_release);
  const std::uint64_t left = queue_.empty() ? last_ : queue_.front()->number - 1;
  if (left != own().left.value.load(std::memory_order_relaxed)) signal(own().left.value, left);
  ring_waiters();
}

// Copy out before sum before copy in: the first frees slots, the second is what others wait for.
bool MemberState::staged_step(Tally& tally) {
  Operation* to_copy_out = nullptr;
  Operation* to_sum = nullptr;
  Operation* to_copy_in = nullptr;
  const auto first = [](Operation*& found, Operation& candidate, std::uint64_t done) {
    if (found == nullptr && done < candidate.rounds) found = &candidate;
  };
  for (const auto& operation : queue_) {
    if (!operation->matched) break;
    first(to_copy_out, *operation, operation->copied_out);
    first(to_sum, *operation, operation->summed);
    first(to_copy_in, *operation, operation->copied_in);
  }
  return (to_copy_out != nullptr && try_copy_out(*to_copy_out)) || (to_sum != nullptr && try_sum(*to_sum, tally)) ||
         (to_copy_in != nullptr && try_copy_in(*to_copy_in));
}

bool MemberState::try_copy_out(Operation& operation) {
  const std::uint64_t round = operation.first_round + operation.copied_out;
  // Taken says that nothing of the round's slots is needed any more: neither by the sum nor by the copy.
  if (operation.summed == operation.copied_out || operation.copied_in == operation.copied_out) return false;
  const Kind kind = operation.request.kind;
  const bool ready = kind == Kind::reduce_scatter || all_ranks([&](const RankBlock& block) {
                       const Word& word = kind == Kind::all_reduce ? block.reduced : block.arrived;
                       return word.value.load(std::memory_order_acquire) > round;
                     });
  if (!ready) return false;
  copied_out_.fetch_add(copy_out(control_, operation, rank_, operation.copied_out), std::memory_order_relaxed);
  ++operation.copied_out;
  advance(own().taken.value);
  return true;
}

bool MemberState::try_sum(Operation& operation, Tally& tally) {
  const std::uint64_t round = operation.first_round + operation.summed;
  const bool ready = !operation.request.reduces() || all_ranks([&](const RankBlock& block) {
    return block.arrived.value.load(std::memory_order_acquire) > round;
  });
  if (!ready) return false;
  const auto begin = trace_begin();
  const std::size_t bytes = sum_round(control_, operation, rank_, operation.summed);
  if (bytes > 0) count(operation, tally, bytes, begin);
  ++operation.summed;
  advance(own().reduced.value);
  return true;
}

bool MemberState::try_copy_in(Operation& operation) {
  const std::uint64_t round = operation.first_round + operation.copied_in;
  const bool ready = all_ranks([&](const RankBlock& block) {
    return block.taken.value.load(std::memory_order_acquire) + control_.window() > round;
  });
  if (!ready) return false;
  copied_in_.fetch_add(copy_in(control_, operation, rank_, operation.copied_in), std::memory_order_relaxed);
  ++operation.copied_in;
  advance(own().arrived.value);
  return true;
}

void MemberState::advance(std::atomic<std::uint64_t>& word) {
  signal(word, word.load(std::memory_order_relaxed) + 1);
  ring_waiters();
  ring_reducers();
}

std::shared_ptr<Operation> MemberState::claimable() const {
  for (const auto& operation : queue_) {
    if (!operation->matched) break;
    if (operation->way != Way::in_place || !operation->reach.complete) continue;
    for (int owner = 0; owner < members(); ++owner) {
      const std::uint64_t word = control_.share(operation->number, owner).claimed.load(std::memory_order_relaxed);
      if (has_work(word, operation->number, operation->in_place.share(owner))) return operation;
    }
  }
  return nullptr;
}

// One piece: of this member's share while it lasts, then of the others'.
bool MemberState::claim_piece(Operation& operation, Tally& tally) {
  const InFlight in_flight(own().in_flight);
  if (aborted(control_)) return false;
  for (int i = 0; i < members(); ++i) {
    const int owner = (rank_ + i) % members();
    Share& share = control_.share(operation.number, owner);
    const std::size_t size = operation.in_place.share(owner);
    const auto index = claim(share, operation.number, size);
    if (!index) continue;
    const auto begin = trace_begin();
    count(operation, tally, do_in_place(operation, owner, *index), begin);
    if (share.done.fetch_add(1) + 1 == (operation.number << kIndexBits | size)) ring_waiters();
    return true;
  }
  return false;
}

// Nothing is timed where nobody looks.
Clock::time_point MemberState::trace_begin() const {
  return trace_ != nullptr && trace_->recording() ? Clock::now() : Clock::time_point();
}

void MemberState::count(const Operation& operation, Tally& tally, std::size_t bytes, Clock::time_point begin) const {
  tally.add(bytes);
  if (begin == Clock::time_point()) return;
  trace_->span(operation.request.reduces() ? "sum" : "copy", begin, Clock::now(), operation_argument(operation),
               {"bytes", static_cast<std::int64_t>(bytes)});
}

}  // namespace sumpter::exchange
