#include "exchange/operation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <limits>
#include <string_view>

namespace sumpter::exchange {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;

std::string_view name_of(Kind kind) {
  switch (kind) {
    case Kind::all_reduce:
      return "all_reduce";
    case Kind::reduce_scatter:
      return "reduce_scatter";
    case Kind::all_gather:
      return "all_gather";
    case Kind::broadcast:
      return "broadcast";
    case Kind::barrier:
      return "barrier";
  }
  return "?";
}

// The number of parts, and a hash (FNV-1a over words) of their counts.
std::uint64_t layout_of(const Request& request) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const Part& part : request.inputs) hash = (hash ^ part.count) * 0x100000001b3U;
  return static_cast<std::uint64_t>(request.inputs.size()) << 40 | hash >> 24;
}

std::uint64_t what_of(const Request& request) {
  return static_cast<std::uint64_t>(request.kind) | static_cast<std::uint64_t>(request.type) << 8 |
         static_cast<std::uint64_t>(request.reduction) << 16 | static_cast<std::uint64_t>(request.root) << 24 |
         static_cast<std::uint64_t>(request.wire) << 32;
}

bool is_barrier(std::uint64_t what) { return static_cast<Kind>(what & 0xff) == Kind::barrier; }

// The details that follow the kind: " of 1024 f32, sum".
std::string details(std::uint64_t what, std::uint64_t count) {
  const auto kind = static_cast<Kind>(what & 0xff);
  if (is_barrier(what)) return "";
  std::string text = fmt::format(" of {} {}", count, name_of(static_cast<ElementType>(what >> 8 & 0xff)));
  if (kind == Kind::all_reduce || kind == Kind::reduce_scatter) {
    text += fmt::format(", {}", name_of(static_cast<Reduction>(what >> 16 & 0xff)));
    const auto wire = static_cast<WireFormat>(what >> 32 & 0xff);
    if (wire != WireFormat::f32) text += fmt::format(", in {}", name_of(wire));
  }
  if (kind == Kind::broadcast) text += fmt::format(", root {}", what >> 24 & 0xff);
  return text;
}

using Label = std::array<std::uint64_t, kLabelBytes / sizeof(std::uint64_t)>;

Label label_of(const Request& request) {
  Label words{};
  std::memcpy(words.data(), request.label.data(), std::min(request.label.size(), kLabelBytes - 1));
  return words;
}
Label label_of(const Descriptor& descriptor) {
  Label words;
  std::transform(std::begin(descriptor.label), std::end(descriptor.label), words.begin(),
                 [](const auto& word) { return word.load(kRelaxed); });
  return words;
}

std::string describe(const Descriptor& descriptor) {
  const std::uint64_t what = descriptor.what.load(kRelaxed);
  if (is_barrier(what)) {
    const Label label = label_of(descriptor);
    if (label.front() != 0) return reinterpret_cast<const char*>(label.data());  // its last byte is zero
  }
  std::string text{name_of(static_cast<Kind>(what & 0xff))};
  text += details(what, descriptor.count.load(kRelaxed));
  const std::uint64_t parts = descriptor.layout.load(kRelaxed) >> 40;
  if (parts != 1 && static_cast<Kind>(what & 0xff) == Kind::all_reduce) text += fmt::format(", in {} parts", parts);
  if (descriptor.consumer.load(kRelaxed) != 0) text += ", to a consumer";
  return text;
}

template <typename T>
void fill(void* data, std::size_t count, T value) {
  std::fill_n(static_cast<T*>(data), count, value);
}

void fill_with_nan(ElementType type, void* data, std::size_t count) {
  switch (type) {
    case ElementType::f32:
      return fill(data, count, std::numeric_limits<float>::quiet_NaN());
    case ElementType::f64:
      return fill(data, count, std::numeric_limits<double>::quiet_NaN());
    case ElementType::bf16:
      return fill(data, count, std::uint16_t{0x7fc0});
    case ElementType::f16:
      return fill(data, count, std::uint16_t{0x7e00});
    default:
      return;
  }
}

}  // namespace

std::string describe(const Operation& operation) {
  const Request& request = operation.request;
  if (!request.label.empty()) return fmt::format("{}, number {}", request.label, operation.number);
  return fmt::format("{} number {}{}", name_of(request.kind), operation.number,
                     details(what_of(request), request.count));
}

void write_descriptor(Descriptor& descriptor, const Request& request, const Places& places) {
  descriptor.what.store(what_of(request), kRelaxed);
  descriptor.count.store(request.count, kRelaxed);
  descriptor.layout.store(layout_of(request), kRelaxed);
  descriptor.input.store(places.input, kRelaxed);
  descriptor.output.store(places.output, kRelaxed);
  descriptor.rows.store(request.rows, kRelaxed);
  descriptor.consumer.store(reinterpret_cast<std::uintptr_t>(request.consumer), kRelaxed);
  if (request.kind != Kind::barrier) return;  // nobody looks at the label then, nor brings its line into the cache
  const Label label = label_of(request);
  for (std::size_t i = 0; i < label.size(); ++i) descriptor.label[i].store(label[i], kRelaxed);
}

bool same_request(const Descriptor& a, const Descriptor& b) {
  return a.what.load(kRelaxed) == b.what.load(kRelaxed) && a.count.load(kRelaxed) == b.count.load(kRelaxed) &&
         a.layout.load(kRelaxed) == b.layout.load(kRelaxed) && a.consumer.load(kRelaxed) == b.consumer.load(kRelaxed) &&
         (!is_barrier(a.what.load(kRelaxed)) || label_of(a) == label_of(b));
}

std::string describe_mismatch(const Control& control, std::uint64_t number, int first, int second) {
  const std::string left = describe(control.descriptor(number, first));
  const std::string right = describe(control.descriptor(number, second));
  const bool alike = left == right;
  return fmt::format("members disagree on operation number {}: rank {}: {}; rank {}: {}{}", number, first, left, second,
                     right, alike ? " (the counts of their parts differ, or their consumers)" : "");
}

void fill_with_nan(const Request& request) {
  for (const Part& part : request.outputs) {
    if (part.data == nullptr) continue;
    auto* const begin = static_cast<std::byte*>(part.data);
    std::size_t before = part.count;  // elements up to the input where that lies inside the output, as a gather's may
    if (request.kind == Kind::all_gather) {
      const auto* const input = static_cast<const std::byte*>(request.inputs[0].data);
      const auto offset = static_cast<std::size_t>(input - begin) / request.element();
      if (input >= begin && offset < part.count) before = offset;
    }
    const std::size_t after = std::min(before + request.count, part.count);
    fill_with_nan(request.type, begin, before);
    fill_with_nan(request.type, begin + after * request.element(), part.count - after);
  }
}

Terms make_terms(const Control& control, std::uint64_t number, const Request& request) {
  Terms terms;
  terms.members = control.members();
  terms.weighted = request.reduction == Reduction::weighted_mean && request.reduces();
  double all_rows = 0;
  for (int rank = 0; rank < control.members(); ++rank) {
    const std::uint64_t rows = control.descriptor(number, rank).rows.load(kRelaxed);
    if (terms.weighted && rows == 0) continue;
    terms.ranks[terms.size] = static_cast<std::uint8_t>(rank);
    terms.scales[terms.size] = static_cast<double>(rows);
    all_rows += static_cast<double>(rows);
    ++terms.size;
  }
  for (std::size_t i = 0; i < terms.size; ++i) terms.scales[i] /= all_rows;
  return terms;
}

}  // namespace sumpter::exchange
