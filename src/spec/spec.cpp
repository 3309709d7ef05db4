#include "sumpter/spec.h"

namespace sumpter {

std::size_t size_of(ElementType type) {
  switch (type) {
    case ElementType::f64:
    case ElementType::i64:
      return 8;
    case ElementType::f32:
    case ElementType::i32:
      return 4;
    case ElementType::bf16:
    case ElementType::f16:
    case ElementType::i16:
      return 2;
    case ElementType::i8:
    case ElementType::u8:
    case ElementType::boolean:
      return 1;
  }
  return 0;
}

std::size_t size_of(WireFormat format) {
  switch (format) {
    case WireFormat::f32:
      return 4;
    case WireFormat::bf16:
    case WireFormat::f16:
      return 2;
    case WireFormat::i8:
      return 1;
  }
  return 0;
}

std::string_view name_of(ElementType type) {
  switch (type) {
    case ElementType::f32:
      return "f32";
    case ElementType::f64:
      return "f64";
    case ElementType::bf16:
      return "bf16";
    case ElementType::f16:
      return "f16";
    case ElementType::i8:
      return "i8";
    case ElementType::u8:
      return "u8";
    case ElementType::i16:
      return "i16";
    case ElementType::i32:
      return "i32";
    case ElementType::i64:
      return "i64";
    case ElementType::boolean:
      return "boolean";
  }
  return "?";
}

std::string_view name_of(Reduction reduction) {
  switch (reduction) {
    case Reduction::sum:
      return "sum";
    case Reduction::average:
      return "average";
    case Reduction::weighted_mean:
      return "weighted_mean";
    case Reduction::minimum:
      return "minimum";
    case Reduction::maximum:
      return "maximum";
    case Reduction::product:
      return "product";
    case Reduction::bitwise_and:
      return "bitwise_and";
    case Reduction::bitwise_or:
      return "bitwise_or";
    case Reduction::bitwise_xor:
      return "bitwise_xor";
  }
  return "?";
}

std::string_view name_of(WireFormat format) {
  switch (format) {
    case WireFormat::f32:
      return "f32";
    case WireFormat::bf16:
      return "bf16";
    case WireFormat::f16:
      return "f16";
    case WireFormat::i8:
      return "i8";
  }
  return "?";
}

bool supports(ElementType type, Reduction reduction) {
  const bool floating =
      type == ElementType::f32 || type == ElementType::f64 || type == ElementType::bf16 || type == ElementType::f16;
  switch (reduction) {
    case Reduction::sum:
    case Reduction::minimum:
    case Reduction::maximum:
    case Reduction::product:
      return true;
    case Reduction::average:
      return type != ElementType::boolean;
    case Reduction::weighted_mean:
      return floating;
    case Reduction::bitwise_and:
    case Reduction::bitwise_or:
    case Reduction::bitwise_xor:
      return !floating;
  }
  return false;
}

}  // namespace sumpter
