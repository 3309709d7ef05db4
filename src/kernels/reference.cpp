#include "kernels/reference.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/format.h"
#include "kernels/optimizer.h"

namespace sumpter::kernels::reference {
namespace {

float total_at(const Sum& job, std::size_t index) {
  const SumInput& first = job.inputs.front();
  float total = decode_at(first.format, first.data, index) * first.scale;
  for (const SumInput& input : job.inputs.subspan(1)) {
    const float term = decode_at(input.format, input.data, index) * input.scale;
    total = total + term;
  }
  return total / job.divisor;
}

// Sends the sum and takes what arrived: the values, the residuals, the count of what was finite and is not.
std::uint64_t arrive(float arrived, float sent, float* values, float* residual, std::size_t index) {
  const bool lost = std::isfinite(load_at<float>(values, index)) && !std::isfinite(arrived);
  store_at(values, index, arrived);
  if (residual != nullptr) {
    const float rest = sent - arrived;
    store_at(residual, index, std::isfinite(rest) ? rest : 0.0F);
  }
  return lost ? 1 : 0;
}

float sent_at(const float* values, const float* residual, std::size_t index) {
  const float value = load_at<float>(values, index);
  return residual == nullptr ? value : value + load_at<float>(residual, index);
}

std::uint64_t round_trip_i8(float* values, float* residual, std::size_t count) {
  std::uint64_t lost = 0;
  std::array<float, kI8Block> sent;
  std::array<std::byte, kI8BlockBytes> block;
  for (std::size_t begin = 0; begin < count; begin += kI8Block) {
    const std::size_t size = std::min(kI8Block, count - begin);
    for (std::size_t i = 0; i < size; ++i) sent[i] = sent_at(values, residual, begin + i);
    encode_i8_block({sent.data(), size}, block.data());
    for (std::size_t i = 0; i < size; ++i) {
      lost += arrive(decode_at(WireFormat::i8, block.data(), i), sent[i], values, residual, begin + i);
    }
  }
  return lost;
}

template <typename T>
void sum_block_squares(const T* values, std::size_t count, double* blocks) {
  for (std::size_t begin = 0; begin < count; begin += kNormBlock) {
    NormLanes lanes = {};
    add_squares(values + begin, 0, std::min(kNormBlock, count - begin), lanes);
    store_at(blocks, begin / kNormBlock, total_of(lanes));
  }
}

template <typename T>
T sgd_parameter(const OptimizerConstants<T>& constants, T parameter, T gradient, T* first, std::size_t index) {
  T direction = gradient;
  if (constants.has_momentum) {
    const T kept = constants.momentum * load_at<T>(first, index);
    const T momentum = kept + gradient;
    store_at(first, index, momentum);
    const T ahead = constants.momentum * momentum;
    direction = constants.nesterov ? gradient + ahead : momentum;
  }
  const T step = constants.rate * direction;
  return parameter - step;
}

template <typename T>
T adam_parameter(const OptimizerConstants<T>& constants, T parameter, T gradient, T* first, T* second,
                 std::size_t index) {
  const T before = load_at<T>(first, index);
  const T moved = constants.first_weight * (gradient - before);
  const T mean = (constants.lerps_back ? gradient : before) + moved;
  const T kept = load_at<T>(second, index) * constants.second_kept;
  const T square = constants.second_weight * gradient * gradient;
  const T variance = kept + square;
  store_at(first, index, mean);
  store_at(second, index, variance);
  const T divisor = std::sqrt(variance) / constants.correction + constants.epsilon;
  return parameter + constants.corrected_rate * mean / divisor;
}

}  // namespace

void convert(WireFormat from, const void* in, WireFormat to, void* out, std::size_t begin, std::size_t end) {
  for (std::size_t i = begin; i < end; ++i) encode_at(to, out, i, decode_at(from, in, i));
}

void encode_i8_block(std::span<const float> values, void* block) {
  std::int32_t largest = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    largest = std::max(largest, magnitude_bits(load_at<float>(values.data(), i)));
  }
  const float scale = i8_scale(largest);
  store_at(block, 0, scale);
  std::byte* const integers = i8_block(block, 0) + sizeof(float);
  for (std::size_t i = 0; i < values.size(); ++i) {
    store_at(integers, i, i8_from_f32(load_at<float>(values.data(), i), scale));
  }
}

std::uint64_t round_trip(WireFormat format, float* values, float* residual, std::size_t begin, std::size_t end) {
  std::uint64_t lost = 0;
  for (std::size_t i = begin; i < end; ++i) {
    const float sent = sent_at(values, residual, i);
    std::array<std::byte, sizeof(double)> encoded = {};  // an element of any format
    encode_at(format, encoded.data(), 0, sent);
    lost += arrive(decode_at(format, encoded.data(), 0), sent, values, residual, i);
  }
  return lost;
}

void sum(const Sum& job, std::size_t begin, std::size_t end) {
  if (job.output_format != WireFormat::i8) {
    for (std::size_t i = begin; i < end; ++i) {
      const float total = total_at(job, i);
      for (void* output : job.outputs) encode_at(job.output_format, output, i, total);
    }
    return;
  }
  std::array<float, kI8Block> totals;
  for (std::size_t i = begin; i < end; i += kI8Block) {
    const std::size_t size = std::min(kI8Block, end - i);
    for (std::size_t k = 0; k < size; ++k) totals[k] = total_at(job, i + k);
    for (void* output : job.outputs) encode_i8_block({totals.data(), size}, i8_block(output, i / kI8Block));
  }
}

template <typename T>
void optimize(const OptimizerConstants<T>& constants, const OptimizerArrays<T>& arrays, std::size_t begin,
              std::size_t end) {
  for (std::size_t i = begin; i < end; ++i) {
    T parameter = load_at<T>(arrays.parameter, i);
    T gradient = load_at<T>(arrays.gradient, i) * constants.gradient_scale;
    if (constants.decays) {
      const T decay = constants.decay * parameter;
      gradient = gradient + decay;
    }
    if (constants.kind == OptimizerKind::sgd) {
      parameter = sgd_parameter(constants, parameter, gradient, arrays.first, i);
    } else {
      parameter = adam_parameter(constants, parameter * constants.kept, gradient, arrays.first, arrays.second, i);
    }
    store_at(arrays.parameter, i, parameter);
  }
}
template void optimize(const OptimizerConstants<float>&, const OptimizerArrays<float>&, std::size_t, std::size_t);
template void optimize(const OptimizerConstants<double>&, const OptimizerArrays<double>&, std::size_t, std::size_t);

template <typename T>
void add_squares(const T* values, std::size_t begin, std::size_t end, NormLanes& lanes) {
  for (std::size_t i = begin; i < end; ++i) {
    const double value = load_at<T>(values, i);
    const double square = value * value;
    lanes[i % kNormLanes] += square;
  }
}
template void add_squares(const float*, std::size_t, std::size_t, NormLanes&);
template void add_squares(const double*, std::size_t, std::size_t, NormLanes&);

double total_of(const NormLanes& lanes) {
  double total = lanes[0];
  for (std::size_t k = 1; k < kNormLanes; ++k) total += lanes[k];
  return total;
}

void encode(WireFormat format, const float* in, void* out, std::size_t count) {
  if (format != WireFormat::i8) return convert(WireFormat::f32, in, format, out, 0, count);
  for (std::size_t i = 0; i < count; i += kI8Block) {
    encode_i8_block({in + i, std::min(kI8Block, count - i)}, i8_block(out, i / kI8Block));
  }
}

void decode(WireFormat format, const void* in, float* out, std::size_t count) {
  convert(format, in, WireFormat::f32, out, 0, count);
}

std::uint64_t round_trip(WireFormat format, float* values, float* residual, std::size_t count) {
  if (format == WireFormat::i8) return round_trip_i8(values, residual, count);
  return round_trip(format, values, residual, 0, count);
}

void sum(const Sum& job) { sum(job, 0, job.count); }

void optimize(const OptimizerStep& step, const OptimizerArrays<float>& arrays) {
  optimize(OptimizerConstants<float>(step), arrays, 0, arrays.count);
}
void optimize(const OptimizerStep& step, const OptimizerArrays<double>& arrays) {
  optimize(OptimizerConstants<double>(step), arrays, 0, arrays.count);
}

void sum_of_squares(const float* values, std::size_t count, double* blocks) {
  sum_block_squares(values, count, blocks);
}
void sum_of_squares(const double* values, std::size_t count, double* blocks) {
  sum_block_squares(values, count, blocks);
}

}  // namespace sumpter::kernels::reference
