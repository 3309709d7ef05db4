#include "kernels/reference.h"

#include "kernels/format.h"

namespace sumpter::kernels::reference {

void convert(WireFormat from, const void* in, WireFormat to, void* out, std::size_t begin, std::size_t end) {
  for (std::size_t i = begin; i < end; ++i) encode_at(to, out, i, decode_at(from, in, i));
}

void sum(const Sum& job, std::size_t begin, std::size_t end) {
  for (std::size_t i = begin; i < end; ++i) {
    const SumInput& first = job.inputs.front();
    float total = decode_at(first.format, first.data, i) * first.scale;
    for (const SumInput& input : job.inputs.subspan(1)) {
      const float term = decode_at(input.format, input.data, i) * input.scale;
      total = total + term;
    }
    total = total / job.divisor;
    for (void* output : job.outputs) encode_at(job.output_format, output, i, total);
  }
}

void sgd(const Sgd& options, const float* gradient, float* parameter, float* momentum_buffer, std::size_t begin,
         std::size_t end) {
  for (std::size_t i = begin; i < end; ++i) {
    const float p = load_at<float>(parameter, i);
    float d = load_at<float>(gradient, i);
    if (options.weight_decay != 0.0F) {
      const float decay = options.weight_decay * p;
      d = d + decay;
    }
    if (options.momentum != 0.0F) {
      const float kept = options.momentum * load_at<float>(momentum_buffer, i);
      d = kept + d;
      store_at(momentum_buffer, i, d);
    }
    const float step = options.learning_rate * d;
    store_at(parameter, i, p - step);
  }
}

void encode(WireFormat format, const float* in, void* out, std::size_t count) {
  convert(WireFormat::f32, in, format, out, 0, count);
}

void decode(WireFormat format, const void* in, float* out, std::size_t count) {
  convert(format, in, WireFormat::f32, out, 0, count);
}

void sum(const Sum& job) { sum(job, 0, job.count); }

void sgd(const Sgd& options, const float* gradient, float* parameter, float* momentum_buffer, std::size_t count) {
  sgd(options, gradient, parameter, momentum_buffer, 0, count);
}

}  // namespace sumpter::kernels::reference
