#include "c10d/backend.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <filesystem>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "c10d/errors.h"
#include "c10d/rendezvous.h"

namespace sumpter {
namespace {

GroupOptions group_options(const BackendSettings& settings, Trace* trace) {
  const BackendOptions& options = *settings.options;
  GroupOptions group;
  group.members = settings.size;
  group.piece = options.piece;
  // One that turns out to be of no use sleeps.
  const bool useless =
      settings.size == 1 || (settings.known_choice && settings.known_choice->reductions == Reductions::waiting);
  group.reducers = options.reducers.value_or(useless ? 0 : 1);
  group.reducer_cores = options.reducer_cores;
  group.window = options.window;
  group.time_limit = options.connect_timeout.value_or(settings.timeout);
  group.trace = trace;
  return group;
}

// Something for all threads of torch to do, for some hundred microseconds.
void compute() {
  static thread_local std::vector<float> values(std::size_t{1} << 14, 1.0F);
  const int threads = at::get_num_threads();
  at::parallel_for(0, threads, 1, [](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      for (int pass = 0; pass < 150; ++pass) {
        for (float& value : values) value = value * 0.999F + 0.001F;
      }
    }
  });
}

constexpr std::string_view kRank = "{rank}";

std::unique_ptr<Trace> make_trace(const BackendOptions& options, int size) {
  if (options.trace.empty()) return nullptr;
  TORCH_CHECK_VALUE(size == 1 || options.trace.find(kRank) != std::string::npos, "sumpter: Options(trace=\"",
                    options.trace, "\"): every rank writes a file of its own, so the name needs {rank}");
  const auto folder = std::filesystem::absolute(options.trace).parent_path();
  TORCH_CHECK_VALUE(std::filesystem::is_directory(folder), "sumpter: Options(trace=\"", options.trace,
                    "\"): ", folder.string(), " is no folder");
  auto trace = std::make_unique<Trace>();
  trace->record(false);  // until the group is made
  return trace;
}

std::optional<Choice> told_by(const BackendOptions& options) {
  if (!options.reducers) return std::nullopt;
  const bool background = *options.reducers > 0;
  return Choice{background ? Reductions::background : Reductions::waiting, "as the option reducers says"};
}

std::string with_rank(std::string file, int rank) {
  const auto at = file.find(kRank);
  return at == std::string::npos ? file : file.replace(at, kRank.size(), std::to_string(rank));
}

}  // namespace

SumpterBackend::SumpterBackend(const c10::intrusive_ptr<c10d::Store>& store, BackendSettings settings)
    : Backend(settings.rank, settings.size),
      settings_(std::move(settings)),
      timeout_(settings_.options->own_timeout.value_or(settings_.timeout).count()),
      trace_(make_trace(*settings_.options, size_)) {
  with_torch_errors([&] {
    StoreRendezvous rendezvous(store);
    exchange_.emplace(Exchange::connect(rank_, group_options(settings_, trace_.get()), rendezvous));
    arena_.emplace(*exchange_);
    if (size_ == 1) {
      choice_.reason = "the group has one member";
    } else {
      // Ranks that were told take part all the same: others may not have been.
      const std::optional<Choice> told = told_by(*settings_.options);
      const Choice found = choose_reductions(*exchange_, told ? told : settings_.known_choice, compute);
      choice_ = told.value_or(found);
      exchange_->pause_reducers(choice_.reductions == Reductions::waiting);
    }
    completer_ = std::make_shared<Completer>(choice_.reductions);
    if (size_ > 1)
      inner_ = std::make_unique<InnerGroup>(*exchange_, settings_.make_inner, time_limit(c10d::kUnsetTimeout));
  });
  if (trace_ != nullptr) trace_->record(true);
  init();
}

SumpterBackend::~SumpterBackend() { close(); }

void SumpterBackend::close() noexcept {
  if (getpid() != process_) {
    // A child of the rank's process, which has copies of all this and none of the threads.
    static_cast<void>(inner_.release());
    return;
  }
  // Without a shutdown (the program ends by an error, say) nobody may have to wait for this rank.
  if (exchange_ && completer_->busy()) {
    exchange_->abort("its process group was destroyed with operations under way");
  }
  try {
    shutdown();
  } catch (const std::exception& error) {
    log::error("destroying the process group: {}", error.what());
  }
}

void SumpterBackend::shutdown() {
  if (!exchange_) return;
  inner_.reset();
  completer_->finish();
  arena_.reset();
  exchange_.reset();
  if (trace_ == nullptr) return;
  try {
    trace_->write(with_rank(settings_.options->trace, rank_));
  } catch (const Error& error) {
    // The work is done: a timeline that is lost is no reason to fail now.
    log::warning("the timeline is lost: {}", error.what());
  }
}

void SumpterBackend::abort() {
  if (exchange_) exchange_->abort("the process group was aborted");
}

c10d::ErrorType SumpterBackend::getError() {
  try {
    exchange().check();
    return c10d::ErrorType::SUCCESS;
  } catch (const TimeoutError&) {
    return c10d::ErrorType::TIMEOUT;
  } catch (const MemberLostError&) {
    return c10d::ErrorType::REMOTE_ERROR;
  } catch (const std::exception&) {
    return c10d::ErrorType::COMM_ERROR;
  }
}

at::Tensor SumpterBackend::allocateTensor(long size, at::TensorOptions options) {
  TORCH_CHECK_VALUE(size >= 0, "sumpter: allocate_tensor: ", size, " elements");
  TORCH_CHECK_VALUE(options.device().is_cpu(), "sumpter: allocate_tensor: a tensor on ", options.device(),
                    "; this version has memory for the cpu");
  return with_torch_errors([&] {
    exchange();
    return arena_->allocate(size, options);
  });
}

BackendStatus SumpterBackend::status() {
  Exchange& group = exchange();
  BackendStatus status;
  status.rank = rank_;
  for (int rank = 0; rank < size_; ++rank) status.processes.push_back(group.process_of(rank));
  status.arena_bytes = group.arena_bytes();
  status.bucket_bytes = arena_->bytes();
  status.buckets_made = arena_->made();
  status.counters = group.counters();
  status.reducers =
      choice_.reductions == Reductions::background ? static_cast<int>(status.counters.reducers.size()) : 0;
  status.reducer_cores = settings_.options->reducer_cores;
  status.choice = choice_;
  status.wire = std::string(name_of(settings_.options->wire));
  status.piece = settings_.options->piece;
  status.timeout = Seconds(time_limit(c10d::kUnsetTimeout)).count();
  status.connect_timeout = Seconds(settings_.options->connect_timeout.value_or(settings_.timeout)).count();
  status.overflows = overflows_->load();
  status.inner_made = inner_ != nullptr && inner_->made();
  return status;
}

std::chrono::milliseconds SumpterBackend::time_limit(std::chrono::milliseconds of_operation) const {
  // Zero or less is torch's way to leave it unsaid.
  return of_operation.count() > 0 ? of_operation : std::chrono::milliseconds(timeout_.load());
}

Exchange& SumpterBackend::exchange() {
  if (!exchange_) throw backend_error("the process group has been shut down");
  return *exchange_;
}

InnerGroup& SumpterBackend::inner() {
  exchange();
  return *inner_;
}

WorkDescription SumpterBackend::describe(c10d::OpType kind, const char* title, const Tensors& inputs,
                                         std::vector<Tensors> outputs) const {
  return {rank_, kind, title, 0, inputs, std::move(outputs)};
}

SumpterBackend::WorkPointer SumpterBackend::start(WorkDescription description, Call call,
                                                  const std::function<Begun(Exchange&)>& begin) {
  Exchange& group = exchange();
  std::shared_ptr<Task> task;
  {
    const std::lock_guard lock(begin_mutex_);
    Begun begun = with_torch_errors([&] { return begin(group); });
    task = std::make_shared<ExchangeTask>(std::move(begun.works), std::move(begun.after), time_limit(call.timeout));
    description.sequence_number = ++sequence_;
  }
  if (call.async && size_ > 1) completer_->drive(task);
  return c10::make_intrusive<TaskWork>(std::move(description), std::move(task), completer_);
}

SumpterBackend::WorkPointer SumpterBackend::start_inner(WorkDescription description, const std::string& label,
                                                        InnerGroup::Begin begin, std::function<void()> after) {
  std::shared_ptr<Task> task;
  {
    const std::lock_guard lock(begin_mutex_);
    Work announcement = with_torch_errors([&] { return exchange().begin_barrier(label); });
    task = inner().collective(std::move(announcement), label, std::move(begin), std::move(after));
    description.sequence_number = ++sequence_;
  }
  return c10::make_intrusive<TaskWork>(std::move(description), std::move(task), completer_);
}

SumpterBackend::WorkPointer SumpterBackend::start_transfer(WorkDescription description, const std::string& label,
                                                           const InnerGroup::Begin& begin,
                                                           std::function<void()> after) {
  std::shared_ptr<Task> task = inner().point_to_point(label, begin, std::move(after));
  description.sequence_number = ++sequence_;
  return c10::make_intrusive<TaskWork>(std::move(description), std::move(task), completer_);
}

}  // namespace sumpter
