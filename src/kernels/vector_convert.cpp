// encode and decode, vectorised. Of i8 a short last block is left to the reference.
#include <hwy/cache_control.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "kernels/float_state.h"
#include "kernels/kernels.h"
#include "kernels/lines.h"
#include "kernels/reference.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/vector_convert.cpp"
#include <hwy/foreach_target.h>  // compiles this file once for each instruction set

#include "kernels/vector-inl.h"
#include "kernels/vector_i8-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sumpter::kernels::HWY_NAMESPACE {

template <WireFormat from, WireFormat to, Store kind>
std::size_t convert_pairs(const void* in, void* out, std::size_t begin, std::size_t end) {
  std::size_t i = begin;
  for (; i + 2 * kLanes <= end; i += 2 * kLanes) {
    store_pair<to, kind>(load<from>(in, i), load<from>(in, i + kLanes), out, i);
  }
  return i;
}

template <WireFormat from, WireFormat to>
void convert(const void* in, void* out, std::size_t count) {
  const std::optional<std::size_t> aligned = first_on_line(out, size_of(to));
  const std::size_t begin = std::min(aligned.value_or(0), count);
  reference::convert(from, in, to, out, 0, begin);
  std::size_t done = 0;
  if (aligned && count * size_of(to) >= kStreamedBytes) {
    done = convert_pairs<from, to, Store::streamed>(in, out, begin, count);
    hwy::FlushStream();
  } else {
    done = convert_pairs<from, to, Store::cached>(in, out, begin, count);
  }
  reference::convert(from, in, to, out, done, count);
}

void encode_i8(const float* in, void* out, std::size_t count) {
  std::size_t i = 0;
  for (; i + kI8Block <= count; i += kI8Block) encode_i8_block(in + i, i8_block(out, i / kI8Block));
  if (i < count) reference::encode_i8_block({in + i, count - i}, i8_block(out, i / kI8Block));
}

template <Store kind>
std::size_t decode_i8_blocks(const void* in, float* out, std::size_t count) {
  std::size_t i = 0;
  for (; i + kI8Block <= count; i += kI8Block) {
    const std::byte* const block = i8_block(in, i / kI8Block);
    const Floats scale = i8_scale_of(block);
    for (std::size_t k = 0; k < kI8Block; k += kLanes) put<kind>(load_i8(block, k, scale), F32(), out + i + k);
  }
  return i;
}

void decode_i8(const void* in, float* out, std::size_t count) {
  std::size_t done = 0;
  if (first_on_line(out, sizeof(float)) == 0 && count * sizeof(float) >= kStreamedBytes) {
    done = decode_i8_blocks<Store::streamed>(in, out, count);
    hwy::FlushStream();
  } else {
    done = decode_i8_blocks<Store::cached>(in, out, count);
  }
  reference::convert(WireFormat::i8, in, WireFormat::f32, out, done, count);
}

void encode(WireFormat format, const float* in, void* out, std::size_t count) {
  if (format == WireFormat::i8) return encode_i8(in, out, count);
  if (format == WireFormat::bf16) return convert<WireFormat::f32, WireFormat::bf16>(in, out, count);
  convert<WireFormat::f32, WireFormat::f16>(in, out, count);
}

void decode(WireFormat format, const void* in, float* out, std::size_t count) {
  if (format == WireFormat::i8) return decode_i8(in, out, count);
  if (format == WireFormat::bf16) return convert<WireFormat::bf16, WireFormat::f32>(in, out, count);
  convert<WireFormat::f16, WireFormat::f32>(in, out, count);
}

const char* target_name() { return hwy::TargetName(HWY_TARGET); }

}  // namespace sumpter::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sumpter::kernels {

HWY_EXPORT(encode);
HWY_EXPORT(decode);
HWY_EXPORT(target_name);

std::size_t wire_bytes(WireFormat format, std::size_t count) {
  const std::size_t blocks = format == WireFormat::i8 ? (count + kI8Block - 1) / kI8Block : 0;
  return count * size_of(format) + blocks * sizeof(float);
}

void encode(WireFormat format, const float* in, void* out, std::size_t count) {
  if (count == 0) return;
  if (format == WireFormat::f32) {
    std::memcpy(out, in, count * sizeof(float));
    return;
  }
  const FloatState state;
  HWY_DYNAMIC_DISPATCH(encode)(format, in, out, count);
}

void decode(WireFormat format, const void* in, float* out, std::size_t count) {
  if (count == 0) return;
  if (format == WireFormat::f32) {
    std::memcpy(out, in, count * sizeof(float));
    return;
  }
  const FloatState state;
  HWY_DYNAMIC_DISPATCH(decode)(format, in, out, count);
}

const char* target_name() { return HWY_DYNAMIC_DISPATCH(target_name)(); }

}  // namespace sumpter::kernels
#endif
