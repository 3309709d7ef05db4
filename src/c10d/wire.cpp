#include "c10d/wire.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/kernels.h"

namespace sumpter {
namespace {

constexpr std::size_t kBlock = 4096;  // values at a time: they stay in the first cache, and are whole blocks of i8
static_assert(kBlock % kernels::kI8Block == 0);

// Calls visit(part, begin in the part, count, begin in all) for blocks of the parts.
template <typename Visit>
void for_each_block(const std::vector<WirePart>& parts, Visit&& visit) {
  std::size_t all = 0;
  for (const WirePart& part : parts) {
    for (std::size_t begin = 0; begin < part.count; begin += kBlock) {
      const std::size_t count = std::min(kBlock, part.count - begin);
      visit(part, begin, count, all);
      all += count;
    }
  }
}

// What the members sum, in the arena: the rounded values in float32. Half formats, which the exchange widens, sums in
// float32 and rounds once by itself, need only half of that where the loss of the last rounding is not kept.
struct Scratch {
  WireFormat format = WireFormat::f32;
  bool narrow = false;
  std::shared_ptr<SharedMemory> memory = {};

  std::byte* at(std::size_t element) const { return static_cast<std::byte*>(memory->data()) + element * size(); }
  std::size_t size() const { return narrow ? size_of(format) : sizeof(float); }
  ElementType type() const {
    if (!narrow) return ElementType::f32;
    return format == WireFormat::bf16 ? ElementType::bf16 : ElementType::f16;
  }
};

std::uint64_t send(const std::vector<WirePart>& parts, const Scratch& scratch) {
  std::uint64_t overflows = 0;
  alignas(64) std::array<float, kBlock> block;
  for_each_block(parts, [&](const WirePart& part, std::size_t begin, std::size_t count, std::size_t all) {
    float* const values = scratch.narrow ? block.data() : reinterpret_cast<float*>(scratch.at(all));
    std::memcpy(values, part.values + begin, count * sizeof(float));
    float* const residual = part.residual == nullptr ? nullptr : part.residual + begin;
    overflows += kernels::round_trip(scratch.format, values, residual, count);
    if (scratch.narrow) kernels::encode(scratch.format, values, scratch.at(all), count);
  });
  return overflows;
}

std::uint64_t receive(const std::vector<WirePart>& parts, const Scratch& scratch) {
  std::uint64_t overflows = 0;
  for_each_block(parts, [&](const WirePart& part, std::size_t begin, std::size_t count, std::size_t all) {
    float* const values = part.values + begin;
    if (scratch.narrow) {
      kernels::decode(scratch.format, scratch.at(all), values, count);
      return;
    }
    std::memcpy(values, scratch.at(all), count * sizeof(float));
    float* const residual = part.sum_residual == nullptr ? nullptr : part.sum_residual + begin;
    overflows += kernels::round_trip(scratch.format, values, residual, count);
  });
  return overflows;
}

}  // namespace

std::pair<Work, std::function<void()>> begin_in_wire(Exchange& exchange, ArenaTensors& arena,
                                                     std::vector<WirePart> parts, WireFormat format,
                                                     Reduction reduction,
                                                     std::shared_ptr<std::atomic<std::uint64_t>> overflows) {
  std::size_t count = 0;
  bool feedback = false;
  for (const WirePart& part : parts) {
    count += part.count;
    feedback = feedback || part.sum_residual != nullptr;
  }
  Scratch scratch{.format = format, .narrow = format != WireFormat::i8 && !feedback};
  scratch.memory = arena.scratch(std::max<std::size_t>(count * scratch.size(), 1));
  overflows->fetch_add(send(parts, scratch));
  const Part part{scratch.memory->data(), count};
  Work work = exchange.begin_all_reduce({&part, 1}, {.type = scratch.type(), .reduction = reduction, .wire = format});
  return {std::move(work), [parts = std::move(parts), scratch, overflows = std::move(overflows)] {
            overflows->fetch_add(receive(parts, scratch));
          }};
}

}  // namespace sumpter
