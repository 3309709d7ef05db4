// Arithmetic over arrays, the only place where numbers are summed, converted or updated. Each function exists as a
// plain reference (namespace kernels::reference, one loop, readable) and as a vector version that is chosen for the
// processor at run time; both give the same bits for every input. Nothing here allocates, blocks or throws; arrays need
// no alignment; counts are elements; all may be called from any thread. Each call sets IEEE 754's default rules (round
// to nearest even, keep subnormals) for its own duration, whatever the thread has set; the references do not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "sumpter/spec.h"

namespace sumpter::kernels {

// Values of i8 that share a float32 scale.
inline constexpr std::size_t kI8Block = 256;

// Bytes of `count` float32 values on a link. i8: each block is its scale (float32, little-endian) and then one int8 a
// value; the last block may be short.
std::size_t wire_bytes(WireFormat format, std::size_t count);

// float32 to a wire format, rounded to nearest, ties to even; subnormals are kept, NaN becomes a quiet NaN, what f16
// cannot hold becomes infinity. i8: the array begins a block; a block's scale is its largest |value| / 127, and each
// value becomes the integer nearest to value / scale, -127 to 127; a block with a value that is not finite has scale
// NaN (all of it decodes to NaN), one whose scale underflows to 0 decodes to 0. `out` holds wire_bytes(format, count)
// bytes and does not overlap `in`.
void encode(WireFormat format, const float* in, void* out, std::size_t count);
// The exact float32 values; i8: integer * scale, rounded to float32.
void decode(WireFormat format, const void* in, float* out, std::size_t count);

// What arrives when values travel: each becomes decode(encode(value + residual)), in place, and the residual (null:
// none is kept, none added) what was lost: (value + residual) - arrived, 0 where that is not finite. Blocks of i8 begin
// at values[0]. Returns how many values were finite and arrived as something that is not: f16's overflow, or i8's
// blocks that became NaN.
std::uint64_t round_trip(WireFormat format, float* values, float* residual, std::size_t count);

struct SumInput {
  const void* data = nullptr;
  WireFormat format = WireFormat::f32;
  float scale = 1.0F;  // multiplied in float32 before adding; 1 leaves every value as it is
};

struct Sum {
  std::span<const SumInput> inputs;  // at least 1, added in this order in float32
  std::span<void* const> outputs;    // at least 1; each gets the same result; may be one of the inputs, exactly
  WireFormat output_format = WireFormat::f32;
  float divisor = 1.0F;  // the sum is divided by it, once, before it is rounded to the output format
  std::size_t count = 0;
};
// outputs[*][i] = round(((in0[i]*s0 + in1[i]*s1) + ...) / divisor), in one pass over memory. Any mix of formats; i8
// arrays begin a block.
void sum(const Sum& job);

// Any reduction of any type that supports(type, reduction). f32, bf16 and f16 sums are `sum` above; half types are
// widened, reduced in float32 and rounded once; NaN in any input gives NaN for minimum and maximum; integers wrap;
// average of integers rounds toward zero; boolean: sum and maximum are "or", product and minimum "and" (any nonzero
// byte is true, results are 0 or 1).
struct Reduce {
  ElementType type = ElementType::f32;
  Reduction reduction = Reduction::sum;
  std::span<const void* const> inputs;  // in rank order
  std::span<const double> scales =
      {};                          // weighted_mean: one for each input (rounded to float32 but for f64); else empty
  std::size_t members = 0;         // average divides by it
  std::span<void* const> outputs;  // may be inputs, exactly
  std::size_t count = 0;
};
void reduce(const Reduce& job);

// One step of torch.optim's SGD (dampening 0), Adam or AdamW, one tensor at a time, without amsgrad. Constants are
// computed in double and rounded once to the arrays' type; each product and sum is rounded on its own.
//   g = gradient * gradient_scale; a coupled decay (sgd, adam; none where weight_decay is 0): g = g + weight_decay*p
//   sgd:   m = momentum*m + g (no m where momentum is 0: d = g); d = m, or g + momentum*m (nesterov);
//          p = p - learning_rate*d
//   adam:  m = m + (1-beta1)*(g-m) (as torch.lerp: g - beta1*(g-m) where 1-beta1 is 0.5 or more);
//          v = beta2*v + ((1-beta2)*g)*g;
//          p = p + (-learning_rate/(1-beta1^step) * m) / (sqrt(v)/sqrt(1-beta2^step) + epsilon)
//   adamw: first p = p * (1 - learning_rate*weight_decay), then as adam
struct OptimizerStep {
  OptimizerKind kind = OptimizerKind::sgd;
  double learning_rate = 0.005;
  double momentum = 0;      // sgd
  double weight_decay = 0;  // all kinds
  double beta1 = 0.9;       // adam, adamw
  double beta2 = 0.999;
  double epsilon = 1e-8;
  bool nesterov = false;      // sgd; needs momentum
  std::uint64_t step = 1;     // counted from 1: Adam's bias corrections
  double gradient_scale = 1;  // multiplies the gradient first (clipping)
};
template <typename T>
struct OptimizerArrays {
  const T* gradient = nullptr;
  T* parameter = nullptr;
  T* first = nullptr;   // m: sgd's momentum buffer (not touched where momentum is 0: may be null), adam's exp_avg
  T* second = nullptr;  // v: adam's exp_avg_sq; sgd does not touch it
  std::size_t count = 0;
};
// m and v start as zeros. No two arrays overlap.
void optimize(const OptimizerStep& step, const OptimizerArrays<float>& arrays);
void optimize(const OptimizerStep& step, const OptimizerArrays<double>& arrays);  // one plain loop, no vector version

// Values whose squares are summed together.
inline constexpr std::size_t kNormBlock = 4096;
// blocks[b] = the sum, in double, of the squares of values [b*kNormBlock, ...); the last block may be short. The order
// is fixed: element i of a block belongs to lane i % 8, and the lanes are added in order.
void sum_of_squares(const float* values, std::size_t count, double* blocks);
void sum_of_squares(const double* values, std::size_t count, double* blocks);

// The vector version in use: "AVX2", "AVX3_ZEN4", "NEON", ...
const char* target_name();

namespace reference {
void encode(WireFormat format, const float* in, void* out, std::size_t count);
void decode(WireFormat format, const void* in, float* out, std::size_t count);
std::uint64_t round_trip(WireFormat format, float* values, float* residual, std::size_t count);
void sum(const Sum& job);
void optimize(const OptimizerStep& step, const OptimizerArrays<float>& arrays);
void optimize(const OptimizerStep& step, const OptimizerArrays<double>& arrays);
void sum_of_squares(const float* values, std::size_t count, double* blocks);
void sum_of_squares(const double* values, std::size_t count, double* blocks);
}  // namespace reference

}  // namespace sumpter::kernels
