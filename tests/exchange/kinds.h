// Every element type and every reduction, for tests that go through all of them.
#pragma once

#include "sumpter/spec.h"

namespace sumpter::tests {

inline constexpr ElementType kTypes[] = {ElementType::f32, ElementType::f64,    ElementType::bf16, ElementType::f16,
                                         ElementType::i8,  ElementType::u8,     ElementType::i16,  ElementType::i32,
                                         ElementType::i64, ElementType::boolean};
inline constexpr Reduction kReductions[] = {Reduction::sum,         Reduction::average,    Reduction::weighted_mean,
                                            Reduction::minimum,     Reduction::maximum,    Reduction::product,
                                            Reduction::bitwise_and, Reduction::bitwise_or, Reduction::bitwise_xor};

}  // namespace sumpter::tests
