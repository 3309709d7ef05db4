// The processor's rules for float arithmetic, set to IEEE 754's defaults for as long as an object lives: round to
// nearest even, keep subnormals, trap nothing. Threads come with whatever their owner chose (torch can flush
// subnormals), and the sum of a piece must not depend on the thread that happens to take it. Costs a few cycles.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace sumpter::kernels {

class FloatState {
 public:
  FloatState() : before_(get()) {
    if ((before_ & kRules) != kDefault) set(kDefault);
  }
  FloatState(const FloatState&) = delete;
  FloatState& operator=(const FloatState&) = delete;
  ~FloatState() {
    if ((before_ & kRules) != kDefault) set(before_);
  }

 private:
#if defined(__x86_64__)
  using Word = unsigned int;
  static constexpr Word kRules = 0xFFC0;    // all of MXCSR but the flags that say what has happened
  static constexpr Word kDefault = 0x1F80;  // all exceptions masked
  static Word get() { return _mm_getcsr(); }
  static void set(Word word) { _mm_setcsr(word); }
#elif defined(__aarch64__)
  using Word = std::uint64_t;
  static constexpr Word kRules = 0x07F7'9F00;  // FPCR: half formats, NaN, flush, rounding, traps
  static constexpr Word kDefault = 0;
  static Word get() {
    Word word = 0;
    asm volatile("mrs %0, fpcr" : "=r"(word));
    return word;
  }
  static void set(Word word) { asm volatile("msr fpcr, %0" : : "r"(word) : "memory"); }
#else
#error "Sumpter's kernels know x86-64 and AArch64"
#endif
  Word before_;
};

}  // namespace sumpter::kernels
