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
  if (operation_ == nullptr || operation_->reported) return;
  try {
    member_->wait(*operation_);
  } catch (const std::exception& error) {
    log::error("an operation that nobody waited for failed: {}", error.what());
  } catch (...) {
    log::error("an operation that nobody waited for failed");
  }
}

bool Work::test() {
  if (!valid()) raise<RequestError>("test() of a Work without an operation");
  try {
    return member_->test(*operation_);
  } catch (...) {
    operation_->reported = true;
    throw;
  }
}

void Work::wait() {
  if (!valid()) raise<RequestError>("wait() of a Work without an operation");
  try {
    member_->wait(*operation_);
  } catch (...) {
    operation_->reported = true;
    throw;
  }
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
  if (data_ != nullptr) member_->segments().release(data_);
}

Exchange::Exchange(std::shared_ptr<MemberState> member) : member_(std::move(member)) {}
Exchange::Exchange(Exchange&&) noexcept = default;

Exchange& Exchange::operator=(Exchange&& other) noexcept {
  std::swap(member_, other.member_);
  return *this;
}

Exchange::~Exchange() {
  if (member_ != nullptr) member_->leave();
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
                                   .inputs = {input},
                                   .outputs = {output}})};
}

Work Exchange::begin_barrier() { return {member_, member_->begin({.kind = Kind::barrier})}; }

void Exchange::abort(const std::string& reason) { member_->abort(reason); }

ExchangeCounters Exchange::counters() const { return member_->counters(); }

Group::Group(const GroupOptions& options) {
  exchange::check_options(options);
  state_ = std::make_shared<exchange::GroupState>(options);
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
