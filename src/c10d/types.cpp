#include "c10d/types.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>

namespace sumpter {
namespace {

struct KnownReduction {
  c10d::ReduceOp::RedOpType op;
  const char* name;
  std::optional<Reduction> reduction;
};
constexpr std::array<KnownReduction, 9> kReductions{{{c10d::ReduceOp::SUM, "SUM", Reduction::sum},
                                                     {c10d::ReduceOp::AVG, "AVG", Reduction::average},
                                                     {c10d::ReduceOp::PRODUCT, "PRODUCT", Reduction::product},
                                                     {c10d::ReduceOp::MIN, "MIN", Reduction::minimum},
                                                     {c10d::ReduceOp::MAX, "MAX", Reduction::maximum},
                                                     {c10d::ReduceOp::BAND, "BAND", Reduction::bitwise_and},
                                                     {c10d::ReduceOp::BOR, "BOR", Reduction::bitwise_or},
                                                     {c10d::ReduceOp::BXOR, "BXOR", Reduction::bitwise_xor},
                                                     {c10d::ReduceOp::PREMUL_SUM, "PREMUL_SUM", std::nullopt}}};

KnownReduction known(const c10d::ReduceOp& op) {
  const auto* const found =
      std::find_if(kReductions.begin(), kReductions.end(), [&](const KnownReduction& one) { return one.op == op.op_; });
  return found != kReductions.end() ? *found : KnownReduction{op.op_, "an unknown reduction", std::nullopt};
}

}  // namespace

std::optional<ElementType> element_type(c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::Float:
      return ElementType::f32;
    case c10::ScalarType::Double:
      return ElementType::f64;
    case c10::ScalarType::BFloat16:
      return ElementType::bf16;
    case c10::ScalarType::Half:
      return ElementType::f16;
    case c10::ScalarType::Char:
      return ElementType::i8;
    case c10::ScalarType::Byte:
      return ElementType::u8;
    case c10::ScalarType::Short:
      return ElementType::i16;
    case c10::ScalarType::Int:
      return ElementType::i32;
    case c10::ScalarType::Long:
      return ElementType::i64;
    case c10::ScalarType::Bool:
      return ElementType::boolean;
    default:
      return std::nullopt;
  }
}

std::string name_of(const c10d::ReduceOp& op) { return known(op).name; }

Arithmetic arithmetic(const char* operation, const c10d::ReduceOp& op, c10::ScalarType type) {
  const auto reduction = known(op).reduction;
  const bool linear = reduction == Reduction::sum || reduction == Reduction::average;
  const auto element = element_type(c10::isComplexType(type) && linear ? c10::toRealValueType(type) : type);
  // The exchange could average integers; torch does not define it.
  const bool averages_integers = reduction == Reduction::average && c10::isIntegralType(type, /*includeBool=*/true);
  TORCH_CHECK_VALUE(element && reduction && supports(*element, *reduction) && !averages_integers,
                    "sumpter: ", operation, ": ", name_of(op), " is not defined for ", c10::toString(type));
  return {*element, *reduction};
}

}  // namespace sumpter
