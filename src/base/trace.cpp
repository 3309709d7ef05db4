#include "base/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/thread.h"

namespace sumpter {

struct Trace::Event {
  const char* name = nullptr;
  Clock::time_point begin, end;
  Argument first, second;
  std::uint64_t id = 0;  // of a flight
};

// One thread's events, in blocks: a vector that grows would stop the thread to move a million of them.
class Trace::Buffer {
 public:
  struct Kept {
    Event event;
    std::size_t resource = kNone;  // its number; kNone on the thread's own row
  };
  static constexpr std::size_t kNone = SIZE_MAX;

  explicit Buffer(std::string thread_name) : thread_name_(std::move(thread_name)) {}

  void add(const Event& event, const std::optional<std::string_view>& resource) {
    const std::lock_guard lock(mutex_);
    const std::size_t number = resource ? number_of(*resource) : kNone;
    if (blocks_.empty() || blocks_.back().size() == kBlock) blocks_.emplace_back().reserve(kBlock);
    blocks_.back().push_back({.event = event, .resource = number});
  }

  // Calls visit(event, resource); the resource is null on the thread's own row.
  template <typename Visit>
  void for_each(const Visit& visit) const {
    const std::lock_guard lock(mutex_);
    for (const std::vector<Kept>& block : blocks_) {
      for (const Kept& kept : block) {
        visit(kept.event, kept.resource == kNone ? nullptr : &resources_[kept.resource]);
      }
    }
  }

  const std::string& thread_name() const { return thread_name_; }

 private:
  static constexpr std::size_t kBlock = 512;

  // A thread knows a handful of resources.
  std::size_t number_of(std::string_view resource) {
    const auto found = std::ranges::find(resources_, resource);
    const auto number = static_cast<std::size_t>(found - resources_.begin());
    if (found == resources_.end()) resources_.emplace_back(resource);
    return number;
  }

  const std::string thread_name_;
  mutable std::mutex mutex_;
  std::vector<std::string> resources_;
  std::vector<std::vector<Kept>> blocks_;
};

// What a thread remembers: itself, and the trace that it added to last. The shared pointers keep both addresses from
// being given to another thread or trace.
struct Trace::ThisThread {
  const std::shared_ptr<const char> identity = std::make_shared<const char>();
  std::shared_ptr<const char> trace;
  Buffer* buffer = nullptr;
};

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD in UTF-8

// Bytes of the UTF-8 character that `text` begins with; 0 where it is none. (RFC 3629: no surrogates, nothing longer
// than needed, nothing above U+10FFFF.)
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const auto follows = [&](std::size_t i) { return (byte(i) & 0xC0U) == 0x80U; };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return follows(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const bool shortest = first != 0xE0 || byte(1) >= 0xA0;
    const bool surrogate = first == 0xED && byte(1) >= 0xA0;
    return shortest && !surrogate && follows(1) && follows(2) ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const bool shortest = first != 0xF0 || byte(1) >= 0x90;
    const bool too_large = first == 0xF4 && byte(1) >= 0x90;
    return shortest && !too_large && follows(1) && follows(2) && follows(3) ? 4 : 0;
  }
  return 0;
}

// A JSON string of any bytes: names may come from outside, and the kernel cuts those of threads anywhere.
std::string json_string(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const auto code = static_cast<unsigned char>(text.front());
    if (length == 0) {
      out += kReplacement;
    } else if (code == '"' || code == '\\') {
      out += {'\\', text.front()};
    } else if (code < 0x20) {
      out += fmt::format("\\u{:04x}", code);
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return out += '"';
}

// "replica 2" before "replica 10": a number at the end counts as one.
auto order_of(std::string_view name) {
  const std::size_t last = name.find_last_not_of("0123456789");
  const std::size_t words = last == std::string_view::npos ? 0 : last + 1;
  return std::tuple(name.substr(0, words), name.size() - words, name.substr(words));
}

// Flights of one resource on as few lines as show all of them without overlap: each goes to the first line that is
// free when it begins.
template <typename Event>
std::vector<std::vector<Event>> without_overlap(std::vector<Event> events) {
  std::ranges::stable_sort(events, {}, [](const Event& event) { return std::pair(event.begin, event.id); });
  std::vector<std::vector<Event>> lines;
  for (const Event& event : events) {
    const auto free = std::ranges::find_if(lines, [&](const auto& line) { return line.back().end <= event.begin; });
    (free == lines.end() ? lines.emplace_back() : *free).push_back(event);
  }
  return lines;
}

// The format counts microseconds; three decimals keep every nanosecond.
std::string microseconds(Clock::duration duration) {
  const auto whole = std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
  return fmt::format("{}.{:03}", whole / 1000, whole % 1000);
}

// The rows of the file are in two groups, which the format calls processes.
enum class Group { threads = 1, flights = 2 };

// Each event of the file stands on a line, with a comma before it but for the first.
void append_metadata(std::string& out, std::string_view kind, Group group, std::size_t row, std::string_view argument) {
  fmt::format_to(std::back_inserter(out), R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{{}}}}})", kind,
                 static_cast<int>(group), row, argument);
}

void append_group(std::string& out, Group group, std::string_view name) {
  append_metadata(out, "process_name", group, 0, fmt::format(R"("name":{})", json_string(name)));
}

}  // namespace

// One row of the file.
struct Trace::Row {
  std::string name;
  Group group = Group::threads;
  std::vector<Event> events;  // by begin; of those that begin together, the outer ones first

  void append(std::string& out, std::size_t number, Clock::time_point origin) const {
    out += ",\n";
    append_metadata(out, "thread_name", group, number, fmt::format(R"("name":{})", json_string(name)));
    out += ",\n";
    append_metadata(out, "thread_sort_index", group, number, fmt::format(R"("sort_index":{})", number));
    for (const Event& event : events) {
      fmt::format_to(std::back_inserter(out),
                     ",\n"
                     R"({{"ph":"X","name":{},"pid":{},"tid":{},"ts":{},"dur":{},"args":{{)",
                     json_string(event.name), static_cast<int>(group), number, microseconds(event.begin - origin),
                     microseconds(event.end - event.begin));
      append_arguments(out, event);
      out += "}}";
    }
  }

 private:
  void append_arguments(std::string& out, const Event& event) const {
    std::string_view separator;
    if (group == Group::flights) {
      fmt::format_to(std::back_inserter(out), R"("id":{})", event.id);
      separator = ",";
    }
    for (const Argument& argument : {event.first, event.second}) {
      if (argument.name == nullptr) continue;
      fmt::format_to(std::back_inserter(out), "{}{}:{}", separator, json_string(argument.name), argument.value);
      separator = ",";
    }
  }
};

Trace::Trace(std::size_t most_events) : most_events_(most_events), identity_(std::make_shared<const char>()) {}
Trace::~Trace() = default;

void Trace::span(const char* name, Clock::time_point begin, Clock::time_point end, Argument first, Argument second) {
  add({.name = name, .begin = begin, .end = end, .first = first, .second = second}, std::nullopt);
}

void Trace::flight(std::string_view resource, const char* name, std::uint64_t id, Clock::time_point begin,
                   Clock::time_point end, Argument first, Argument second) {
  add({.name = name, .begin = begin, .end = end, .first = first, .second = second, .id = id}, resource);
}

void Trace::add(Event event, const std::optional<std::string_view>& resource) noexcept {
  if (!recording()) return;
  if (wanted_.fetch_add(1, std::memory_order_relaxed) >= most_events_) return;
  event.end = std::max(event.begin, event.end);
  try {
    buffer_of_this_thread().add(event, resource);
  } catch (...) {  // no memory: a timeline is no reason to end a run
    failed_.fetch_add(1, std::memory_order_relaxed);
  }
}

Trace::Buffer& Trace::buffer_of_this_thread() {
  thread_local ThisThread self;
  if (self.trace != identity_) {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<Buffer>& buffer = buffers_[self.identity];
    if (!buffer) buffer = std::make_unique<Buffer>(name_of_this_thread());
    self.trace = identity_;
    self.buffer = buffer.get();
  }
  return *self.buffer;
}

std::uint64_t Trace::dropped() const {
  const std::uint64_t wanted = wanted_.load(std::memory_order_relaxed);
  return wanted - std::min<std::uint64_t>(wanted, most_events_) + failed_.load(std::memory_order_relaxed);
}

std::vector<Trace::Row> Trace::rows() const {
  std::vector<Row> rows;
  std::map<std::string, std::vector<Event>> flights;
  const std::lock_guard lock(mutex_);
  for (const auto& [thread, buffer] : buffers_) {
    Row own{.name = buffer->thread_name(), .group = Group::threads, .events = {}};
    buffer->for_each([&](const Event& event, const std::string* resource) {
      (resource == nullptr ? own.events : flights[*resource]).push_back(event);
    });
    std::ranges::stable_sort(own.events, {}, [](const Event& event) {
      return std::pair(event.begin, Clock::time_point::max() - event.end);
    });
    if (!own.events.empty()) rows.push_back(std::move(own));
  }
  for (auto& [resource, events] : flights) {
    for (auto& line : without_overlap(std::move(events))) {
      rows.push_back({.name = resource, .group = Group::flights, .events = std::move(line)});
    }
  }
  // No row is empty; threads of the same name come as they began.
  std::ranges::stable_sort(
      rows, {}, [](const Row& row) { return std::tuple(row.group, order_of(row.name), row.events.front().begin); });
  return rows;
}

void Trace::write(const std::filesystem::path& file) const {
  const std::vector<Row> all = rows();
  Clock::time_point origin = all.empty() ? Clock::time_point() : Clock::time_point::max();
  for (const Row& row : all) origin = std::min(origin, row.events.front().begin);
  std::string out = fmt::format(R"({{"displayTimeUnit":"ms","otherData":{{"dropped":{}}},"traceEvents":[)", dropped());
  out += '\n';
  append_group(out, Group::threads, "threads");
  out += ",\n";
  append_group(out, Group::flights, "under way");
  for (std::size_t number = 0; number < all.size(); ++number) all[number].append(out, number + 1, origin);
  out += "\n]}\n";
  write_file_atomically(file, out);
}

}  // namespace sumpter
