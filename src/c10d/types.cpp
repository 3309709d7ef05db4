#include "c10d/types.h"

#include <c10/util/Exception.h>

namespace sumpter {
namespace {

std::optional<Reduction> reduction_of(const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
      return Reduction::sum;
    case c10d::ReduceOp::AVG:
      return Reduction::average;
    case c10d::ReduceOp::PRODUCT:
      return Reduction::product;
    case c10d::ReduceOp::MIN:
      return Reduction::minimum;
    case c10d::ReduceOp::MAX:
      return Reduction::maximum;
    case c10d::ReduceOp::BAND:
      return Reduction::bitwise_and;
    case c10d::ReduceOp::BOR:
      return Reduction::bitwise_or;
    case c10d::ReduceOp::BXOR:
      return Reduction::bitwise_xor;
    default:
      return std::nullopt;
  }
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

std::string name_of(const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
      return "SUM";
    case c10d::ReduceOp::AVG:
      return "AVG";
    case c10d::ReduceOp::PRODUCT:
      return "PRODUCT";
    case c10d::ReduceOp::MIN:
      return "MIN";
    case c10d::ReduceOp::MAX:
      return "MAX";
    case c10d::ReduceOp::BAND:
      return "BAND";
    case c10d::ReduceOp::BOR:
      return "BOR";
    case c10d::ReduceOp::BXOR:
      return "BXOR";
    case c10d::ReduceOp::PREMUL_SUM:
      return "PREMUL_SUM";
    default:
      return "an unknown reduction";
  }
}

Arithmetic arithmetic(const char* operation, const c10d::ReduceOp& op, c10::ScalarType type) {
  const auto reduction = reduction_of(op);
  const bool linear = reduction == Reduction::sum || reduction == Reduction::average;
  const auto element = element_type(c10::isComplexType(type) && linear ? c10::toRealValueType(type) : type);
  // The exchange could average integers; torch does not define it.
  const bool averages_integers = reduction == Reduction::average && c10::isIntegralType(type, /*includeBool=*/true);
  TORCH_CHECK_VALUE(element && reduction && supports(*element, *reduction) && !averages_integers,
                    "sumpter: ", operation, ": ", name_of(op), " is not defined for ", c10::toString(type));
  return {*element, *reduction};
}

}  // namespace sumpter
