// The sum of several inputs, vectorised: one pass over memory, a block of vectors at a time held in registers.
#include <hwy/cache_control.h>

#include <algorithm>
#include <array>
#include <optional>

#include "kernels/float_state.h"
#include "kernels/kernels.h"
#include "kernels/lines.h"
#include "kernels/reference.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/vector_sum.cpp"
#include <hwy/foreach_target.h>  // compiles this file once for each instruction set

#include "kernels/vector-inl.h"
#include "kernels/vector_i8-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sumpter::kernels::HWY_NAMESPACE {

template <std::size_t size>
struct Block {
  Floats vectors[size];
};

template <WireFormat format, std::size_t size>
HWY_INLINE Block<size> load_block(const void* array, std::size_t index) {
  Block<size> block;
  for (std::size_t v = 0; v < size; ++v) block.vectors[v] = load<format>(array, index + v * kLanes);
  return block;
}

template <WireFormat format, Store kind, std::size_t size>
HWY_INLINE void store_block(const Block<size>& block, void* array, std::size_t index) {
  if constexpr (size == 1) {
    store<format>(block.vectors[0], array, index);
  } else {
    for (std::size_t v = 0; v < size; v += 2) {
      store_pair<format, kind>(block.vectors[v], block.vectors[v + 1], array, index + v * kLanes);
    }
  }
}

// How many inputs there are, all of them f32 with scale 1: the case that must be fastest. kAny promises nothing.
constexpr std::size_t kAny = 0;

// A block of the input's values times its scale. A factor of 1 would change no bits.
template <std::size_t size, std::size_t inputs>
HWY_INLINE Block<size> term(const SumInput& input, std::size_t index) {
  if constexpr (inputs != kAny) return load_block<WireFormat::f32, size>(input.data, index);
  Block<size> block;
  switch (input.format) {
    case WireFormat::bf16:
      block = load_block<WireFormat::bf16, size>(input.data, index);
      break;
    case WireFormat::f16:
      block = load_block<WireFormat::f16, size>(input.data, index);
      break;
    case WireFormat::f32:
      block = load_block<WireFormat::f32, size>(input.data, index);
      break;
    case WireFormat::i8:  // sum_by_block's
      break;
  }
  if (input.scale != 1.0F) {
    const Floats scale = hn::Set(F32(), input.scale);
    for (Floats& vector : block.vectors) vector = hn::Mul(vector, scale);
  }
  return block;
}

// The sum over the inputs in their order.
template <std::size_t size, std::size_t inputs>
HWY_INLINE Block<size> total_of(const Sum& job, std::size_t index) {
  const std::size_t number = inputs == kAny ? job.inputs.size() : inputs;
  Block<size> total = term<size, inputs>(job.inputs[0], index);
  for (std::size_t k = 1; k < number; ++k) {
    const Block<size> next = term<size, inputs>(job.inputs[k], index);
    for (std::size_t v = 0; v < size; ++v) total.vectors[v] = hn::Add(total.vectors[v], next.vectors[v]);
  }
  return total;
}

// Sums whole blocks from element `index` on and returns the first element that is left. All inputs of a block are
// loaded before the block is stored, so that outputs may be inputs.
template <std::size_t size, std::size_t inputs, Store kind>
std::size_t sum_blocks(const Sum& request, std::size_t index) {
  const Sum job = request;  // a copy that no store can reach: its fields stay in registers
  for (; index + size * kLanes <= job.count; index += size * kLanes) {
    Block<size> total = total_of<size, inputs>(job, index);
    if (job.divisor != 1.0F) {
      const Floats divisor = hn::Set(F32(), job.divisor);
      for (Floats& vector : total.vectors) vector = hn::Div(vector, divisor);
    }
    for (void* output : job.outputs) {
      switch (job.output_format) {
        case WireFormat::bf16:
          store_block<WireFormat::bf16, kind>(total, output, index);
          break;
        case WireFormat::f16:
          store_block<WireFormat::f16, kind>(total, output, index);
          break;
        case WireFormat::f32:
          store_block<WireFormat::f32, kind>(total, output, index);
          break;
        case WireFormat::i8:  // sum_by_block's
          break;
      }
    }
  }
  return index;
}

template <Store kind>
std::size_t sum_large_blocks(const Sum& job, std::size_t index) {
  for (const SumInput& input : job.inputs) {
    if (input.format != WireFormat::f32 || input.scale != 1.0F) return sum_blocks<4, kAny, kind>(job, index);
  }
  switch (job.inputs.size()) {
    case 2:
      return sum_blocks<4, 2, kind>(job, index);
    case 3:
      return sum_blocks<4, 3, kind>(job, index);
    case 4:
      return sum_blocks<4, 4, kind>(job, index);
    case 8:
      return sum_blocks<4, 8, kind>(job, index);
    default:
      return sum_blocks<4, kAny, kind>(job, index);
  }
}

bool has_i8(const Sum& job) {
  return job.output_format == WireFormat::i8 ||
         std::ranges::any_of(job.inputs, [](const SumInput& input) { return input.format == WireFormat::i8; });
}

// In place a line is in the cache already, and storing past it costs more. Several outputs need not lie alike.
bool streams(const Sum& job) {
  if (job.outputs.size() != 1 || job.count * size_of(job.output_format) < kStreamedBytes) return false;
  return std::ranges::none_of(job.inputs, [&](const SumInput& input) { return input.data == job.outputs[0]; });
}

// Adds kI8Block values of an input, times its scale, to the totals; those of the first input begin them.
template <WireFormat format>
HWY_INLINE void add_terms(const SumInput& input, std::size_t index, bool first, float* totals) {
  const std::byte* const block = i8_block(input.data, index / kI8Block);
  const Floats block_scale = format == WireFormat::i8 ? i8_scale_of(block) : hn::Zero(F32());
  const Floats scale = hn::Set(F32(), input.scale);
  for (std::size_t i = 0; i < kI8Block; i += kLanes) {
    Floats term;
    if constexpr (format == WireFormat::i8) {
      term = load_i8(block, i, block_scale);
    } else {
      term = load<format>(input.data, index + i);
    }
    term = hn::Mul(term, scale);
    hn::Store(first ? term : hn::Add(hn::Load(F32(), totals + i), term), F32(), totals + i);
  }
}

void add_terms(const SumInput& input, std::size_t index, bool first, float* totals) {
  switch (input.format) {
    case WireFormat::bf16:
      return add_terms<WireFormat::bf16>(input, index, first, totals);
    case WireFormat::f16:
      return add_terms<WireFormat::f16>(input, index, first, totals);
    case WireFormat::i8:
      return add_terms<WireFormat::i8>(input, index, first, totals);
    case WireFormat::f32:
      return add_terms<WireFormat::f32>(input, index, first, totals);
  }
}

// Where i8 takes part: whole blocks of it by way of the first cache, since an output's scale is known last. Returns the
// first element that is left. As above, outputs may be inputs.
std::size_t sum_by_i8_block(const Sum& job) {
  alignas(kLineBytes) std::array<float, kI8Block> totals;
  void* const result = totals.data();
  const SumInput summed = {.data = totals.data()};
  std::size_t index = 0;
  for (; index + kI8Block <= job.count; index += kI8Block) {
    for (const SumInput& input : job.inputs) add_terms(input, index, &input == job.inputs.data(), totals.data());
    if (job.divisor != 1.0F) {
      sum_blocks<1, kAny, Store::cached>(
          {.inputs = {&summed, 1}, .outputs = {&result, 1}, .divisor = job.divisor, .count = kI8Block}, 0);
    }
    for (void* output : job.outputs) {
      if (job.output_format == WireFormat::i8) {
        encode_i8_block(totals.data(), i8_block(output, index / kI8Block));
      } else {
        std::byte* const at = static_cast<std::byte*>(output) + index * size_of(job.output_format);
        encode(job.output_format, totals.data(), at, kI8Block);
      }
    }
  }
  return index;
}

void sum(const Sum& job) {
  if (has_i8(job)) return reference::sum(job, sum_by_i8_block(job), job.count);
  // Arrays that come from one allocator tend to lie alike, so that one of them speaks for all.
  const std::optional<std::size_t> aligned = first_on_line(job.outputs[0], size_of(job.output_format));
  const std::size_t begin = std::min(aligned.value_or(0), job.count);
  reference::sum(job, 0, begin);
  std::size_t done = 0;
  if (aligned && streams(job)) {
    done = sum_large_blocks<Store::streamed>(job, begin);
    hwy::FlushStream();
  } else {
    done = sum_large_blocks<Store::cached>(job, begin);
  }
  done = sum_blocks<1, kAny, Store::cached>(job, done);
  reference::sum(job, done, job.count);
}

}  // namespace sumpter::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sumpter::kernels {

HWY_EXPORT(sum);

void sum(const Sum& job) {
  const FloatState state;
  HWY_DYNAMIC_DISPATCH(sum)(job);
}

}  // namespace sumpter::kernels
#endif
