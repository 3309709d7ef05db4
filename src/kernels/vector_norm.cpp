// The squares of a norm, vectorised: the same lanes for every instruction set, in as many vectors as they take.
#include <algorithm>
#include <type_traits>

#include "kernels/float_state.h"
#include "kernels/kernels.h"
#include "kernels/reference.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/vector_norm.cpp"
#include <hwy/foreach_target.h>  // compiles this file once for each instruction set

#include "kernels/format.h"
#include "kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sumpter::kernels::HWY_NAMESPACE {

using F64 = hn::CappedTag<double, kNormLanes>;
using Doubles = hn::Vec<F64>;

inline constexpr std::size_t kDoubles = hn::MaxLanes(F64());

template <typename T>
HWY_INLINE Doubles load_doubles(const T* values) {
  if constexpr (std::is_same_v<T, float>) {
    return hn::PromoteTo(F64(), hn::LoadU(hn::Rebind<float, F64>(), values));
  } else {
    return hn::LoadU(F64(), values);
  }
}

template <typename T>
double sum_block(const T* values, std::size_t size) {
  constexpr std::size_t kVectors = kNormLanes / kDoubles;
  Doubles totals[kVectors];
  for (Doubles& total : totals) total = hn::Zero(F64());
  std::size_t i = 0;
  for (; i + kNormLanes <= size; i += kNormLanes) {
    for (std::size_t v = 0; v < kVectors; ++v) {
      const Doubles value = load_doubles(values + i + v * kDoubles);
      totals[v] = hn::Add(totals[v], hn::Mul(value, value));
    }
  }
  NormLanes lanes;
  for (std::size_t v = 0; v < kVectors; ++v) hn::StoreU(totals[v], F64(), lanes.data() + v * kDoubles);
  reference::add_squares(values, i, size, lanes);
  return reference::total_of(lanes);
}

template <typename T>
void sum_blocks(const T* values, std::size_t count, double* blocks) {
  for (std::size_t begin = 0; begin < count; begin += kNormBlock) {
    store_at(blocks, begin / kNormBlock, sum_block(values + begin, std::min(kNormBlock, count - begin)));
  }
}

void sum_floats(const float* values, std::size_t count, double* blocks) { sum_blocks(values, count, blocks); }
void sum_doubles(const double* values, std::size_t count, double* blocks) { sum_blocks(values, count, blocks); }

}  // namespace sumpter::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sumpter::kernels {

HWY_EXPORT(sum_floats);
HWY_EXPORT(sum_doubles);

void sum_of_squares(const float* values, std::size_t count, double* blocks) {
  const FloatState state;
  HWY_DYNAMIC_DISPATCH(sum_floats)(values, count, blocks);
}

void sum_of_squares(const double* values, std::size_t count, double* blocks) {
  const FloatState state;
  HWY_DYNAMIC_DISPATCH(sum_doubles)(values, count, blocks);
}

}  // namespace sumpter::kernels
#endif
