// A timeline as Chrome trace JSON, which Perfetto (ui.perfetto.dev) and chrome://tracing show: one row per thread, and
// rows for things that are under way beside them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "base/clock.h"

namespace sumpter {

// A number that is shown with an event. `name` is a literal; null: there is none.
struct TraceArgument {
  const char* name = nullptr;
  std::int64_t value = 0;
};

// Any thread may add, several at a time: each has a buffer of its own, so they do not wait for one another. Nothing
// throws while adding: what finds no room, or no memory, is dropped and counted.
class Trace {
 public:
  // Keeps up to `most_events` spans and flights, of some 70 bytes each as they come.
  explicit Trace(std::size_t most_events = std::size_t{1} << 20);
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;
  ~Trace();

  using Argument = TraceArgument;

  // On the calling thread's row, which has the name that the thread had at its first event (name_this_thread). Spans of
  // one thread lie inside one another or apart, as scopes do. `name` is a literal.
  void span(const char* name, Clock::time_point begin, Clock::time_point end, Argument first = {},
            Argument second = {});
  // On the row `resource` ("chunks of replica 0"), where flights may overlap: it gets as many lines as that takes. `id`
  // tells flights apart; it is shown as the argument "id". `name` is a literal.
  void flight(std::string_view resource, const char* name, std::uint64_t id, Clock::time_point begin,
              Clock::time_point end, Argument first = {}, Argument second = {});

  // On at first. While off nothing is kept, and adding costs one load.
  void record(bool on) { recording_.store(on, std::memory_order_relaxed); }
  bool recording() const { return recording_.load(std::memory_order_relaxed); }
  std::uint64_t dropped() const;

  // Writes all events, times counted from the earliest. The file appears whole or not at all. Throws SystemError. Call
  // it when no thread adds any more: later events may be missing.
  void write(const std::filesystem::path& file) const;

 private:
  struct Event;
  class Buffer;
  struct Row;
  struct ThisThread;

  void add(Event event, const std::optional<std::string_view>& resource) noexcept;
  Buffer& buffer_of_this_thread();
  std::vector<Row> rows() const;

  const std::size_t most_events_;
  const std::shared_ptr<const char> identity_;  // an address that no other trace has while a thread remembers it
  std::atomic<bool> recording_{true};
  std::atomic<std::uint64_t> wanted_{0};  // events that came while it recorded
  std::atomic<std::uint64_t> failed_{0};  // those that there was no memory for
  mutable std::mutex mutex_;              // of the map, which a thread looks at for its first event
  std::map<std::shared_ptr<const char>, std::unique_ptr<Buffer>> buffers_;  // by thread
};

// A span from here to the end of its scope; nothing when `trace` is null or does not record.
class TraceSpan {
 public:
  TraceSpan(Trace* trace, const char* name, Trace::Argument first = {}, Trace::Argument second = {})
      : trace_(trace != nullptr && trace->recording() ? trace : nullptr), name_(name), first_(first), second_(second) {
    if (trace_ != nullptr) begin_ = Clock::now();
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;
  ~TraceSpan() {
    if (trace_ != nullptr) trace_->span(name_, begin_, Clock::now(), first_, second_);
  }

 private:
  Trace* const trace_;
  const char* const name_;
  const Trace::Argument first_, second_;
  Clock::time_point begin_;
};

}  // namespace sumpter
