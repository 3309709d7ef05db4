// Any reduction of any type, a block at a time: plain loops that the compiler vectorises. Sums of f32, bf16 and f16 go
// through sum().
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <type_traits>

#include "kernels/float_state.h"
#include "kernels/kernels.h"

namespace sumpter::kernels {
namespace {

constexpr std::size_t kMaximumInputs = 64;
constexpr std::size_t kBlock = 512;  // elements; stays in the first cache beside the inputs it meets

const std::byte* at(const void* array, std::size_t offset) { return static_cast<const std::byte*>(array) + offset; }
std::byte* at(void* array, std::size_t offset) { return static_cast<std::byte*>(array) + offset; }

// What a type is reduced in, and how a block of it is read from and written to an array.
template <typename T>
struct Plain {
  using Value = T;
  static void read(const void* array, std::size_t begin, T* out, std::size_t size) {
    std::memcpy(out, at(array, begin * sizeof(T)), size * sizeof(T));
  }
  static void write(const T* in, void* array, std::size_t begin, std::size_t size) {
    std::memcpy(at(array, begin * sizeof(T)), in, size * sizeof(T));
  }
};
template <WireFormat format>
struct Half {
  using Value = float;
  static void read(const void* array, std::size_t begin, float* out, std::size_t size) {
    decode(format, at(array, begin * 2), out, size);
  }
  static void write(const float* in, void* array, std::size_t begin, std::size_t size) {
    encode(format, in, at(array, begin * 2), size);
  }
};
// Any nonzero byte is true; as 0 and 1, "or" is the maximum and "and" the minimum.
struct Boolean {
  using Value = std::uint8_t;
  static void read(const void* array, std::size_t begin, std::uint8_t* out, std::size_t size) {
    std::memcpy(out, at(array, begin), size);
    for (std::size_t i = 0; i < size; ++i) out[i] = out[i] != 0 ? 1 : 0;
  }
  static void write(const std::uint8_t* in, void* array, std::size_t begin, std::size_t size) {
    std::memcpy(at(array, begin), in, size);
  }
};

constexpr auto kKeep = [](auto value) { return value; };
constexpr auto kEqualWeights = [](auto value, std::size_t /*input*/) { return value; };

// For each element, total = combine(total, weigh(value, input)) over the inputs in their order, then finish(total) goes
// to every output. A block's inputs are all read before the block is written, so that outputs may be inputs.
template <typename Type, typename Combine, typename Finish = decltype(kKeep), typename Weigh = decltype(kEqualWeights)>
void reduce_blocks(const Reduce& job, Combine combine, Finish finish = kKeep, Weigh weigh = kEqualWeights) {
  std::array<typename Type::Value, kBlock> total;
  std::array<typename Type::Value, kBlock> next;
  for (std::size_t begin = 0; begin < job.count; begin += kBlock) {
    const std::size_t size = std::min(kBlock, job.count - begin);
    Type::read(job.inputs[0], begin, total.data(), size);
    for (std::size_t i = 0; i < size; ++i) total[i] = weigh(total[i], 0);
    for (std::size_t k = 1; k < job.inputs.size(); ++k) {
      Type::read(job.inputs[k], begin, next.data(), size);
      for (std::size_t i = 0; i < size; ++i) total[i] = combine(total[i], weigh(next[i], k));
    }
    for (std::size_t i = 0; i < size; ++i) total[i] = finish(total[i]);
    for (void* output : job.outputs) Type::write(total.data(), output, begin, size);
  }
}

// Minimum, maximum and product of any floating type. A NaN replaces any number, and no comparison replaces a NaN.
template <typename Type>
void reduce_floating(const Reduce& job) {
  using Value = typename Type::Value;
  switch (job.reduction) {
    case Reduction::minimum:
      return reduce_blocks<Type>(
          job, [](Value total, Value next) { return next < total || std::isnan(next) ? next : total; });
    case Reduction::maximum:
      return reduce_blocks<Type>(
          job, [](Value total, Value next) { return next > total || std::isnan(next) ? next : total; });
    default:
      return reduce_blocks<Type>(job, std::multiplies<Value>());
  }
}

void reduce_double(const Reduce& job) {
  using Type = Plain<double>;
  const auto divisor = static_cast<double>(job.members);
  const std::span<const double> scales = job.scales;
  switch (job.reduction) {
    case Reduction::sum:
      return reduce_blocks<Type>(job, std::plus<double>());
    case Reduction::average:
      return reduce_blocks<Type>(job, std::plus<double>(), [divisor](double total) { return total / divisor; });
    case Reduction::weighted_mean:
      return reduce_blocks<Type>(job, std::plus<double>(), kKeep,
                                 [scales](double value, std::size_t input) { return value * scales[input]; });
    default:
      return reduce_floating<Type>(job);
  }
}

template <typename T>
void reduce_integer(const Reduce& job) {
  using Type = Plain<T>;
  // Wide enough that neither int's promotion nor a signed overflow comes in: cut back to T, the result wraps.
  using Wide = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
  const auto add = [](T total, T next) { return static_cast<T>(static_cast<Wide>(total) + static_cast<Wide>(next)); };
  const auto divisor = static_cast<std::int64_t>(job.members);
  switch (job.reduction) {
    case Reduction::average:
      return reduce_blocks<Type>(job, add, [divisor](T total) { return static_cast<T>(total / divisor); });
    case Reduction::minimum:
      return reduce_blocks<Type>(job, [](T total, T next) { return std::min(total, next); });
    case Reduction::maximum:
      return reduce_blocks<Type>(job, [](T total, T next) { return std::max(total, next); });
    case Reduction::product:
      return reduce_blocks<Type>(
          job, [](T total, T next) { return static_cast<T>(static_cast<Wide>(total) * static_cast<Wide>(next)); });
    case Reduction::bitwise_and:
      return reduce_blocks<Type>(job, std::bit_and<T>());
    case Reduction::bitwise_or:
      return reduce_blocks<Type>(job, std::bit_or<T>());
    case Reduction::bitwise_xor:
      return reduce_blocks<Type>(job, std::bit_xor<T>());
    default:
      return reduce_blocks<Type>(job, add);
  }
}

void reduce_boolean(const Reduce& job) {
  switch (job.reduction) {
    case Reduction::minimum:
    case Reduction::product:
    case Reduction::bitwise_and:
      return reduce_blocks<Boolean>(job, std::bit_and<std::uint8_t>());
    case Reduction::bitwise_xor:
      return reduce_blocks<Boolean>(job, std::bit_xor<std::uint8_t>());
    default:
      return reduce_blocks<Boolean>(job, std::bit_or<std::uint8_t>());
  }
}

void reduce_sum(const Reduce& job, WireFormat format) {
  std::array<SumInput, kMaximumInputs> inputs;
  for (std::size_t k = 0; k < job.inputs.size(); ++k) {
    const float scale = job.reduction == Reduction::weighted_mean ? static_cast<float>(job.scales[k]) : 1.0F;
    inputs[k] = {.data = job.inputs[k], .format = format, .scale = scale};
  }
  sum({.inputs = {inputs.data(), job.inputs.size()},
       .outputs = job.outputs,
       .output_format = format,
       .divisor = job.reduction == Reduction::average ? static_cast<float>(job.members) : 1.0F,
       .count = job.count});
}

template <WireFormat format, typename Type>
void reduce_wire(const Reduce& job) {
  const bool sums = job.reduction == Reduction::sum || job.reduction == Reduction::average ||
                    job.reduction == Reduction::weighted_mean;
  if (sums) return reduce_sum(job, format);
  reduce_floating<Type>(job);
}

}  // namespace

void reduce(const Reduce& job) {
  const FloatState state;
  switch (job.type) {
    case ElementType::f32:
      return reduce_wire<WireFormat::f32, Plain<float>>(job);
    case ElementType::f64:
      return reduce_double(job);
    case ElementType::bf16:
      return reduce_wire<WireFormat::bf16, Half<WireFormat::bf16>>(job);
    case ElementType::f16:
      return reduce_wire<WireFormat::f16, Half<WireFormat::f16>>(job);
    case ElementType::i8:
      return reduce_integer<std::int8_t>(job);
    case ElementType::u8:
      return reduce_integer<std::uint8_t>(job);
    case ElementType::i16:
      return reduce_integer<std::int16_t>(job);
    case ElementType::i32:
      return reduce_integer<std::int32_t>(job);
    case ElementType::i64:
      return reduce_integer<std::int64_t>(job);
    case ElementType::boolean:
      return reduce_boolean(job);
  }
}

}  // namespace sumpter::kernels
