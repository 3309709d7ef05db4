#include "bench/limit.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/limit.cpp"
#include <hwy/foreach_target.h>  // includes this file once for each instruction set
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace sumpter::bench {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <std::size_t kInputs, std::size_t kOutputs, class D>
void sum_at(D d, float* const* inputs, float* const* outputs, std::size_t i) {
  auto sum = hn::LoadU(d, inputs[0] + i);
  for (std::size_t k = 1; k < kInputs; ++k) sum = hn::Add(sum, hn::LoadU(d, inputs[k] + i));
  for (std::size_t k = 0; k < kOutputs; ++k) hn::StoreU(sum, d, outputs[k] + i);
}

// The pointers are copied so that no store can be taken for a change of them.
template <std::size_t kInputs, std::size_t kOutputs>
void sum_range(float* const* inputs, float* const* outputs, std::size_t begin, std::size_t end) {
  const hn::ScalableTag<float> wide;
  const hn::CappedTag<float, 1> one;
  float* in[kInputs];
  float* out[kOutputs];
  for (std::size_t k = 0; k < kInputs; ++k) in[k] = inputs[k];
  for (std::size_t k = 0; k < kOutputs; ++k) out[k] = outputs[k];
  std::size_t i = begin;
  for (; i + hn::Lanes(wide) <= end; i += hn::Lanes(wide)) sum_at<kInputs, kOutputs>(wide, in, out, i);
  for (; i < end; ++i) sum_at<kInputs, kOutputs>(one, in, out, i);
}

template <std::size_t kInputs>
bool sum_if(std::span<float* const> inputs, std::span<float* const> outputs, std::size_t begin, std::size_t end) {
  if (inputs.size() != kInputs) return false;
  if (outputs.size() == 1) {
    sum_range<kInputs, 1>(inputs.data(), outputs.data(), begin, end);
  } else {
    sum_range<kInputs, kInputs>(inputs.data(), outputs.data(), begin, end);
  }
  return true;
}

template <std::size_t... kIndices>
bool sum_any(std::index_sequence<kIndices...>, std::span<float* const> inputs, std::span<float* const> outputs,
             std::size_t begin, std::size_t end) {
  return (sum_if<kIndices + 1>(inputs, outputs, begin, end) || ...);
}

bool sum_limit(std::span<float* const> inputs, std::span<float* const> outputs, std::size_t begin, std::size_t end) {
  return sum_any(std::make_index_sequence<16>(), inputs, outputs, begin, end);
}

}  // namespace HWY_NAMESPACE
}  // namespace sumpter::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "base/error.h"

namespace sumpter::bench {
HWY_EXPORT(sum_limit);

void sum_limit(std::span<float* const> inputs, std::span<float* const> outputs, std::size_t begin, std::size_t end) {
  const bool known = outputs.size() == 1 || outputs.size() == inputs.size();
  if (!known || !HWY_DYNAMIC_DISPATCH(sum_limit)(inputs, outputs, begin, end))
    raise<RequestError>("the limit is known for 1 to 16 inputs and one output or as many, not {} and {}", inputs.size(),
                        outputs.size());
}

}  // namespace sumpter::bench
#endif
