#include "exchange/member.h"

#include <algorithm>

#include "base/error.h"
#include "base/thread.h"
#include "exchange/transfer.h"

namespace sumpter::exchange {

MemberState::MemberState(std::shared_ptr<GroupState> group, int rank)
    : group_(std::move(group)),
      control_(group_->control()),
      rank_(rank),
      one_process_(group_->join(rank)),
      trace_(one_process_ || group_->meeting() == Meeting::connected ? group_->options().trace : nullptr),
      membership_(control_, rank),
      segments_(group_->arena()),
      watch_(control_, rank, group_->options().watch),
      reducer_tallies_(one_process_ ? 0 : static_cast<std::size_t>(group_->options().reducers)) {
  // The reducers of a group of threads are dealt out to the members; every process has its own.
  auto& tallies = one_process_ ? group_->reducer_tallies() : reducer_tallies_;
  for (std::size_t i = 0; i < tallies.size(); ++i) {
    if (one_process_ && static_cast<int>(i % static_cast<std::size_t>(members())) != rank_) continue;
    reducers_.emplace_back(
        [this, i, &tally = tallies[i]](const std::stop_token& stop) { reduce_until(stop, i, tally); });
  }
}

MemberState::~MemberState() { leave(); }

void Membership::end() const {
  control_.rank(rank_).presence.store(Presence::left);
  ring_all(control_);
}

void MemberState::leave() {
  if (is_copy()) return;
  std::call_once(left_, [this] {
    // In this order: who has left writes into nobody's memory any more.
    for (std::jthread& reducer : reducers_) reducer.request_stop();
    ring(own().reducers);
    reducers_.clear();
    membership_.end();
  });
}

void MemberState::ring_waiters() const {
  for (int rank = 0; rank < members(); ++rank) ring(control_.rank(rank).waiters);
}

void MemberState::ring_reducers() const {
  for (int rank = 0; rank < members(); ++rank) ring(control_.rank(rank).reducers);
}

bool MemberState::readable_by_all(const void* data, std::size_t bytes) const {
  return one_process_ || segments_.find(data, bytes) != kPrivate;
}

void MemberState::check(const Request& request) const {
  if (request.reduces() && !supports(request.type, request.reduction)) {
    raise<RequestError>("{} is not defined for {}", name_of(request.reduction), name_of(request.type));
  }
  if (request.root < 0 || request.root >= members()) {
    raise<RequestError>("root {} of a broadcast is not a rank; the group has {} members", request.root, members());
  }
  if (request.consumer != nullptr) {
    const bool mean_or_sum = request.reduction == Reduction::sum || request.reduction == Reduction::average ||
                             request.reduction == Reduction::weighted_mean;
    if (!one_process_) raise<RequestError>("a consumer needs members that are threads of one process");
    if (request.type != ElementType::f32 || !mean_or_sum) {
      raise<RequestError>("a consumer takes sums and means of f32, not {} of {}", name_of(request.reduction),
                          name_of(request.type));
    }
  }
  const bool may_be_null = request.reduces() && request.reduction == Reduction::weighted_mean && request.rows == 0;
  const auto check_parts = [&](const std::vector<Part>& parts) {
    for (const Part& part : parts) {
      if (part.data == nullptr && part.count > 0 && !may_be_null) {
        raise<RequestError>("a part of {} elements has no data; only a member with 0 rows may pass null", part.count);
      }
    }
  };
  check_parts(request.inputs);
  check_parts(request.outputs);
}

bool MemberState::is_small(const Request& request) const {
  return members() > 1 && request.consumer == nullptr && request.input_bytes(members()) <= kSmallBytes;
}

Places MemberState::places_of(const Request& request) const {
  const auto place = [&](const std::vector<Part>& parts) -> Place {
    if (parts.size() != 1) return kPrivate;
    const Part& part = parts.front();
    if (part.data == nullptr) return kNowhere;
    return segments_.find(part.data, part.count * request.element());
  };
  const Place input = place(request.inputs);
  return {input, request.kind == Kind::all_reduce || request.kind == Kind::broadcast ? input : place(request.outputs)};
}

std::shared_ptr<Operation> MemberState::begin(Request request) {
  if (is_copy()) {
    raise<RequestError>(
        "process {} was forked from member {}, process {}, and is no member itself: it cannot take part", getpid(),
        rank_, process_);
  }
  check(request);
  if (aborted(control_)) {
    retire();
    raise_abort();
  }
  auto operation = std::make_shared<Operation>(last_ + 1, std::move(request));
  make_room(*operation);
  if (!one_process_ && !staging_reserved_ && !is_small(operation->request)) {
    group_->arena().reserve_staging(rank_);
    staging_reserved_ = true;
  }
  post(operation);
  return operation;
}

void MemberState::post(const std::shared_ptr<Operation>& operation) {
  const std::uint64_t number = operation->number;
  const Request& request = operation->request;
  const bool small = is_small(request);
  Places places;
  {
    const std::lock_guard lock(mutex_);
    if (retired_) raise_abort();  // meanwhile, by another thread of this member
    if (small) {
      if (request.kind == Kind::broadcast ? request.root == rank_ : takes_part(request)) {
        const std::size_t elements = request.input_bytes(members()) / request.element();
        copied_in_.fetch_add(
            copy_from_parts(request.inputs, {0, elements}, request.element(), control_.small_slot(number, rank_)),
            std::memory_order_relaxed);
      }
    } else {
      if (one_process_) {
        group_->publish(number, rank_, operation);
      } else {
        places = places_of(request);
      }
      Share& share = control_.share(number, rank_);
      share.claimed.store(number << kIndexBits);
      share.done.store(number << kIndexBits);
    }
    Descriptor& descriptor = control_.descriptor(number, rank_);
    write_descriptor(descriptor, request, places);
    queue_.push_back(operation);
    last_ = number;
    signal(descriptor.ready, number);
  }
  ring_waiters();
  if (!small) ring_reducers();
}

std::int64_t MemberState::process_of(int rank) const {
  if (rank < 0 || rank >= members()) {
    raise<RequestError>("the group of {} members has no rank {}", members(), rank);
  }
  return static_cast<std::int64_t>(control_.rank(rank).pid.load());
}

ExchangeCounters MemberState::counters() const {
  return {.operations = finished_.load(),
          .in_place = in_place_.load(),
          .staged = staged_.load(),
          .small = small_.load(),
          .bytes_copied_in = copied_in_.load(),
          .bytes_copied_out = copied_out_.load(),
          .own = own_tally_.value(),
          .reducers = values_of(one_process_ ? group_->reducer_tallies() : reducer_tallies_),
          .seconds_waited = static_cast<double>(nanoseconds_waited_.load()) * 1e-9};
}

}  // namespace sumpter::exchange
