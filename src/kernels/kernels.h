// Arithmetic over arrays, the only place where numbers are summed, converted or updated. Each function exists as a
// plain reference (namespace kernels::reference, one loop, readable) and as a vector version that is chosen for the
// processor at run time; both give the same bits for every input. Nothing here allocates, blocks or throws; arrays need
// no alignment; counts are elements; all may be called from any thread. Each call sets IEEE 754's default rules (round
// to nearest even, keep subnormals) for its own duration, whatever the thread has set; the references do not.
#pragma once

#include <cstddef>
#include <span>

#include "sumpter/spec.h"

namespace sumpter::kernels {

// float32 to a wire format, rounded to nearest, ties to even; subnormals are kept, NaN becomes a quiet NaN, what f16
// cannot hold becomes infinity. `out` holds count elements of the format and does not overlap `in`.
void encode(WireFormat format, const float* in, void* out, std::size_t count);
// The exact float32 values.
void decode(WireFormat format, const void* in, float* out, std::size_t count);

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
// outputs[*][i] = round(((in0[i]*s0 + in1[i]*s1) + ...) / divisor), in one pass over memory.
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

// torch.optim.SGD (dampening 0): d = g + weight_decay*p; m = momentum*m + d; p = p - learning_rate*m. With momentum 0
// `momentum_buffer` may be null and m is d. A buffer that starts at zero gives torch's first step.
struct Sgd {
  float learning_rate = 0.1F;
  float momentum = 0.0F;
  float weight_decay = 0.0F;
};
void sgd(const Sgd& options, const float* gradient, float* parameter, float* momentum_buffer, std::size_t count);

// The vector version in use: "AVX2", "AVX3_ZEN4", "NEON", ...
const char* target_name();

namespace reference {
void encode(WireFormat format, const float* in, void* out, std::size_t count);
void decode(WireFormat format, const void* in, float* out, std::size_t count);
void sum(const Sum& job);
void sgd(const Sgd& options, const float* gradient, float* parameter, float* momentum_buffer, std::size_t count);
}  // namespace reference

}  // namespace sumpter::kernels
