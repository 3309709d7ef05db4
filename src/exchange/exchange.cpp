// The public face: checks what is asked for and hands it to the member.
#include "sumpter/exchange.h"

#include "base/error.h"
#include "base/log.h"
#include "exchange/abort.h"
#include "exchange/connect.h"
#include "exchange/group.h"
#include "exchange/member.h"

namespace sumpter {

using exchange::Kind;
using exchange::MemberState;
using exchange::Request;

namespace {

// For a child of a member's process: to undo anything would be to undo it for the member, whose threads it does not
// have.
void abandon(std::shared_ptr<MemberState> member) {
  static auto& abandoned = *new std::vector<std::shared_ptr<MemberState>>;
  abandoned.push_back(std::move(member));
}

}  // namespace

Work::Work(std::shared_ptr<MemberState> member, std::shared_ptr<exchange::Operation> operation)
    : member_(std::move(member)), operation_(std::move(operation)) {}

Work::Work(Work&&) noexcept = default;

Work& Work::operator=(Work&& other) noexcept {
  Work old(std::move(*this));
  member_ = std::move(other.member_);
  operation_ = std::move(other.operation_);
  return *this;
}

Work::~Work() {
  if (operation_ == nullptr || operation_->reported.load()) return;
  if (member_->is_copy()) {
    abandon(std::move(member_));
    return;
  }
  try {
    member_->wait(*operation_);
  } catch (const std::exception& error) {
    log::error("an operation that nobody waited for failed: {}", error.what());
  } catch (...) {
    log::error("an operation that nobody waited for failed");
  }
}

namespace {

// What `action` throws has been told to the owner of the operation: its Work need not log it any more.
template <typename Action>
auto reporting(exchange::Operation* operation, const char* name, Action&& action) {
  if (operation == nullptr) raise<RequestError>("{}() of a Work without an operation", name);
  try {
    return action(*operation);
  } catch (...) {
    operation->reported.store(true);
    throw;
  }
}

}  // namespace

bool Work::test() {
  return reporting(operation_.get(), "test", [&](auto& operation) { return member_->test(operation); });
}

void Work::wait() {
  reporting(operation_.get(), "wait", [&](auto& operation) { member_->wait(operation); });
}

void Work::wait(std::chrono::milliseconds time_limit) {
  reporting(operation_.get(), "wait", [&](auto& operation) { member_->wait(operation, time_limit); });
}

bool Work::wait_for(std::chrono::milliseconds duration) {
  return reporting(operation_.get(), "wait_for",
                   [&](auto& operation) { return member_->wait_for(operation, duration); });
}

std::string Work::pending() const {
  if (!valid()) raise<RequestError>("pending() of a Work without an operation");
  return member_->pending(*operation_);
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : member_(std::move(other.member_)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(member_, other.member_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

SharedMemory::~SharedMemory() {
  if (data_ == nullptr) return;
  if (member_->is_copy()) {
    abandon(std::move(member_));
    return;
  }
  member_->segments().release(data_);
}

Exchange::Exchange(std::shared_ptr<MemberState> member) : member_(std::move(member)) {}
Exchange::Exchange(Exchange&&) noexcept = default;

Exchange& Exchange::operator=(Exchange&& other) noexcept {
  std::swap(member_, other.member_);
  return *this;
}

Exchange::~Exchange() {
  if (member_ == nullptr) return;
  if (member_->is_copy()) {
    abandon(std::move(member_));
    return;
  }
  member_->leave();
}

Exchange Exchange::connect(int rank, const GroupOptions& options, Rendezvous& rendezvous) {
  return Exchange(std::make_shared<MemberState>(exchange::meet(rank, options, rendezvous), rank));
}

int Exchange::rank() const { return member_->rank(); }
int Exchange::members() const { return member_->members(); }

SharedMemory Exchange::allocate(std::size_t bytes) {
  SharedMemory memory;
  memory.data_ = member_->segments().allocate(bytes);
  memory.bytes_ = bytes;
  memory.member_ = member_;
  return memory;
}

bool Exchange::readable_by_all(const void* data, std::size_t bytes) const {
  return member_->readable_by_all(data, bytes);
}

Work Exchange::begin_all_reduce(std::span<const Part> parts, const AllReduceOptions& options) {
  Request request{.kind = Kind::all_reduce,
                  .type = options.type,
                  .reduction = options.reduction,
                  .rows = options.rows,
                  .consumer = options.consumer,
                  .wire = options.wire,
                  .inputs = {parts.begin(), parts.end()},
                  .outputs = {parts.begin(), parts.end()}};
  for (const Part& part : parts) request.count += part.count;
  return {member_, member_->begin(std::move(request))};
}

Work Exchange::begin_broadcast(Part part, ElementType type, int root) {
  Request request{.kind = Kind::broadcast, .type = type, .root = root, .count = part.count, .inputs = {part}};
  if (root != rank()) request.outputs = {part};
  return {member_, member_->begin(std::move(request))};
}

Work Exchange::begin_all_gather(Part input, Part output, ElementType type) {
  if (output.count != input.count * static_cast<std::size_t>(members())) {
    raise<RequestError>("all_gather of {} elements by {} members needs an output of {}, not {}", input.count, members(),
                        input.count * static_cast<std::size_t>(members()), output.count);
  }
  return {member_,
          member_->begin(
              {.kind = Kind::all_gather, .type = type, .count = input.count, .inputs = {input}, .outputs = {output}})};
}

Work Exchange::begin_reduce_scatter(Part input, Part output, const AllReduceOptions& options) {
  if (input.count != output.count * static_cast<std::size_t>(members())) {
    raise<RequestError>("reduce_scatter to {} elements each by {} members needs an input of {}, not {}", output.count,
                        members(), output.count * static_cast<std::size_t>(members()), input.count);
  }
  if (options.consumer != nullptr) raise<RequestError>("a consumer can be given to an all_reduce only");
  return {member_, member_->begin({.kind = Kind::reduce_scatter,
                                   .type = options.type,
                                   .reduction = options.reduction,
                                   .count = output.count,
                                   .rows = options.rows,
                                   .wire = options.wire,
                                   .inputs = {input},
                                   .outputs = {output}})};
}

Work Exchange::begin_barrier(std::string_view label) {
  return {member_,
          member_->begin({.kind = Kind::barrier, .label = std::string(label.substr(0, exchange::kLabelBytes - 1))})};
}

void Exchange::abort(const std::string& reason) { member_->abort(reason); }
void Exchange::check() const { member_->look(); }
void Exchange::pause_reducers(bool paused) { member_->pause_reducers(paused); }

void Exchange::call() { member_->call(); }
bool Exchange::wait_until_called(const std::stop_token& stop) const {
  const std::shared_ptr<MemberState> member = member_;  // which another thread may be leaving
  return member->wait_until_called(stop);
}

ExchangeCounters Exchange::counters() const { return member_->counters(); }
std::size_t Exchange::arena_bytes() const { return member_->arena_bytes(); }
std::int64_t Exchange::process_of(int rank) const { return member_->process_of(rank); }

Group::Group(const GroupOptions& options) {
  exchange::check_options(options);
  state_ = std::make_shared<exchange::GroupState>(options, exchange::Arena::create(options), exchange::Meeting::joined);
}
Group::Group(Group&&) noexcept = default;
Group& Group::operator=(Group&&) noexcept = default;
Group::~Group() = default;

Exchange Group::join(int rank) { return Exchange(std::make_shared<MemberState>(state_, rank)); }

void Group::abort(int culprit, const std::string& reason) {
  const auto& control = state_->control();
  exchange::abort_group(control, exchange::Fault::lost, culprit, 0,
                        exchange::name_of_rank(control, culprit) + " made the group be aborted: " + reason);
}

std::vector<WorkerCounters> Group::reducer_counters() const { return exchange::values_of(state_->reducer_tallies()); }
std::size_t Group::arena_bytes() const { return state_->arena().held_bytes(); }

}  // namespace sumpter
