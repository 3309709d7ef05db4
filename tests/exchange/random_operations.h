// Random operations of the exchange from a seed, and what each must give. Values are chosen so that all arithmetic is
// exact in every type, whatever the order.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "kernels/kernels.h"
#include "sumpter/exchange.h"
#include "tests/exchange/kinds.h"
#include "tests/support/members.h"

namespace sumpter::tests {

enum class Kind { all_reduce, broadcast, all_gather, reduce_scatter, barrier };
enum class Where { arena, own, mixed };

// One operation, the same on every member.
struct Step {
  Kind kind = Kind::barrier;
  ElementType type = ElementType::f32;
  Reduction reduction = Reduction::sum;
  Where where = Where::own;
  int root = 0;
  std::vector<std::size_t> counts;  // of the parts; of one block for all_gather and reduce_scatter
  std::vector<std::uint64_t> rows;  // of each rank; add up to 8
  bool consumed = false;
};

constexpr std::size_t kCounts[] = {0, 1, 7, 63, 64, 1'000, 4'096, 4'097, 16'384, 30'001, 100'000, 200'003};

using Random = std::mt19937_64;
inline std::size_t below(Random& random, std::size_t bound) { return static_cast<std::size_t>(random() % bound); }
template <typename T, std::size_t N>
T one_of(Random& random, const T (&values)[N]) {
  return values[below(random, N)];
}

inline Step random_step(Random& random, int members, As as, std::size_t longest) {
  Step step;
  step.kind = static_cast<Kind>(below(random, 5));
  do {
    step.type = below(random, 2) == 0 ? ElementType::f32 : one_of(random, kTypes);
    step.reduction = below(random, 2) == 0 ? Reduction::sum : one_of(random, kReductions);
  } while (!supports(step.type, step.reduction));
  step.where = static_cast<Where>(below(random, 3));
  step.root = static_cast<int>(below(random, static_cast<std::size_t>(members)));
  const std::size_t parts = step.kind == Kind::all_reduce ? 1 + below(random, 4) : 1;
  for (std::size_t i = 0; i < parts; ++i) {
    step.counts.push_back(std::min(one_of(random, kCounts), longest));
  }
  step.rows.assign(static_cast<std::size_t>(members), 0);
  for (int i = 0; i < 8; ++i) {
    ++step.rows[below(random, step.rows.size())];
  }
  step.consumed = as == As::threads && step.kind == Kind::all_reduce && step.type == ElementType::f32 &&
                  static_cast<int>(step.reduction) <= static_cast<int>(Reduction::weighted_mean) &&
                  below(random, 2) == 0;
  return step;
}

inline std::uint64_t hash(std::uint64_t x) {
  x = (x ^ (x >> 31)) * 0x9E3779B97F4A7C15U;
  return x ^ (x >> 29);
}

// Element i of a rank's input. Sums stay below 256, which bf16 holds exactly (128 for i8), and divide by 2, 3, 4 and 8.
inline int input_value(const Step& step, std::uint64_t seed, int rank, std::size_t i) {
  const std::uint64_t bits = hash(seed * 64 + static_cast<std::uint64_t>(rank) + (i << 20));
  if (step.type == ElementType::boolean) {
    return static_cast<int>(bits & 1);
  }
  if (step.reduction == Reduction::product) {
    return 1 + static_cast<int>(bits & 1);
  }
  return 24 * static_cast<int>(step.type == ElementType::i8 ? bits & 1 : bits % 3);
}

inline int reduced(const Step& step, std::uint64_t seed, std::size_t i) {
  const auto members = static_cast<int>(step.rows.size());
  int sum = 0;
  int product = 1;
  int weighted = 0;
  int minimum = 1 << 20;
  int maximum = 0;
  int all = ~0;
  int any = 0;
  int odd = 0;
  for (int rank = 0; rank < members; ++rank) {
    const int value = input_value(step, seed, rank, i);
    sum += value;
    product *= value;
    weighted += value / 8 * static_cast<int>(step.rows[static_cast<std::size_t>(rank)]);
    minimum = std::min(minimum, value);
    maximum = std::max(maximum, value);
    all &= value;
    any |= value;
    odd ^= value;
  }
  switch (step.reduction) {
    case Reduction::sum:
      return step.type == ElementType::boolean ? maximum : sum;
    case Reduction::average:
      return sum / members;
    case Reduction::weighted_mean:
      return weighted;
    case Reduction::minimum:
      return minimum;
    case Reduction::maximum:
      return maximum;
    case Reduction::product:
      return product;
    case Reduction::bitwise_and:
      return all;
    case Reduction::bitwise_or:
      return any;
    case Reduction::bitwise_xor:
      return odd;
  }
  return -1;
}

template <typename T>
void store(void* at, std::size_t i, int value) {
  static_cast<T*>(at)[i] = static_cast<T>(value);
}

inline void store_value(ElementType type, void* at, std::size_t i, int value) {
  const auto number = static_cast<float>(value);
  switch (type) {
    case ElementType::f32:
      return store<float>(at, i, value);
    case ElementType::f64:
      return store<double>(at, i, value);
    case ElementType::bf16:
      return kernels::reference::encode(WireFormat::bf16, &number, static_cast<std::uint16_t*>(at) + i, 1);
    case ElementType::f16:
      return kernels::reference::encode(WireFormat::f16, &number, static_cast<std::uint16_t*>(at) + i, 1);
    case ElementType::i8:
      return store<std::int8_t>(at, i, value);
    case ElementType::u8:
    case ElementType::boolean:
      return store<std::uint8_t>(at, i, value);
    case ElementType::i16:
      return store<std::int16_t>(at, i, value);
    case ElementType::i32:
      return store<std::int32_t>(at, i, value);
    case ElementType::i64:
      return store<std::int64_t>(at, i, value);
  }
}

// True for any integer, and for a NaN of a floating type.
inline bool is_nan_or_integer(ElementType type, const void* at, std::size_t i) {
  const auto half = [&](WireFormat format) {
    float value = 0.0F;
    kernels::reference::decode(format, static_cast<const std::uint16_t*>(at) + i, &value, 1);
    return std::isnan(value);
  };
  switch (type) {
    case ElementType::f32:
      return std::isnan(static_cast<const float*>(at)[i]);
    case ElementType::f64:
      return std::isnan(static_cast<const double*>(at)[i]);
    case ElementType::bf16:
      return half(WireFormat::bf16);
    case ElementType::f16:
      return half(WireFormat::f16);
    default:
      return true;
  }
}

class Collected : public SumConsumer {
 public:
  explicit Collected(const std::vector<std::size_t>& counts) {
    for (const std::size_t count : counts) {
      sums_.emplace_back(count, -1.0F);
    }
  }
  void consume(std::size_t part, std::size_t begin, std::span<const float> sum) override {
    for (const float value : sum) {
      float& place = sums_.at(part).at(begin++);
      if (place != -1.0F) {
        throw std::logic_error("an element was consumed twice");
      }
      place = value;
    }
  }
  const std::vector<std::vector<float>>& sums() const { return sums_; }

 private:
  std::vector<std::vector<float>> sums_;
};

// The operations of one run, and the consumers that its threads share.
struct Schedule {
  std::uint64_t seed;
  int members;
  std::vector<Step> steps;
  std::vector<std::unique_ptr<Collected>> consumers;  // one for each step that is consumed, else null

  Schedule(std::uint64_t seed_, const GroupOptions& options, As as, int length)
      : seed(seed_), members(options.members) {
    // Pieces of 64 bytes make a signal of every sixteen numbers.
    const std::size_t longest = options.piece * 1'000;
    Random random(seed);
    for (int i = 0; i < length; ++i) {
      steps.push_back(random_step(random, members, as, longest / size_of(ElementType::f64)));
      consumers.push_back(steps.back().consumed ? std::make_unique<Collected>(steps.back().counts) : nullptr);
    }
  }
  std::uint64_t seed_of(std::size_t index) const { return hash(seed) + index; }
};

}  // namespace sumpter::tests
