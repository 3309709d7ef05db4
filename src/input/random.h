// Random numbers that are the same on every machine and with every standard library: SplitMix64 (Steele, Lea and Flood,
// "Fast splittable pseudorandom number generators", OOPSLA 2014). Its n-th number is a function of seed and n alone.
#pragma once

#include <cstdint>

namespace sumpter {

inline constexpr std::uint64_t kGoldenGamma = 0x9E3779B97F4A7C15;  // 2^64 over the golden ratio, made odd

// SplitMix64's finalizer: a bijection whose every output bit depends on every input bit.
constexpr std::uint64_t mix_bits(std::uint64_t bits) {
  bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9;
  bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB;
  return bits ^ (bits >> 31);
}

// The seed of stream number `stream`; different streams of one seed never share one.
constexpr std::uint64_t stream_seed(std::uint64_t seed, std::uint64_t stream) {
  return mix_bits(mix_bits(seed + kGoldenGamma) + kGoldenGamma * stream);
}

// Streams of a run's seed that belong to one purpose; the orders of rows have those numbered as their epochs.
inline constexpr std::uint64_t kTextStream = std::uint64_t{1} << 62;
inline constexpr std::uint64_t kAugmentStream = kTextStream + 1;

class Random {
 public:
  constexpr explicit Random(std::uint64_t seed) : state_(seed) {}

  constexpr std::uint64_t next() { return mix_bits(state_ += kGoldenGamma); }

  // Every number below `bound` (at least 1) with the same probability.
  constexpr std::uint64_t below(std::uint64_t bound) {
    // 2^64 is seldom a multiple of the bound: the first 2^64 % bound numbers would come once too often.
    const std::uint64_t surplus = (0 - bound) % bound;
    std::uint64_t number = next();
    while (number < surplus) number = next();
    return number % bound;
  }

 private:
  std::uint64_t state_;
};

}  // namespace sumpter
