#include "train/inputs.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/upsample_bilinear2d.h>

#include <cstring>

#include "base/error.h"

namespace sumpter {
namespace {

std::int64_t count_of(const Rows& rows) { return static_cast<std::int64_t>(rows.labels.size()); }

std::vector<std::int64_t> sizes_of(const Rows& rows) {
  return {count_of(rows), static_cast<std::int64_t>(rows.shape.channels), static_cast<std::int64_t>(rows.shape.height),
          static_cast<std::int64_t>(rows.shape.width)};
}

at::ScalarType type_of(Precision precision) { return precision == Precision::float64 ? at::kDouble : at::kFloat; }

// A view of the rows' bytes. from_blob takes no const pointer; what is done with it only reads.
torch::Tensor bytes_of(const Rows& rows, const std::vector<std::int64_t>& sizes) {
  return at::from_blob(const_cast<std::uint8_t*>(rows.images.data()), sizes, at::kByte);
}

torch::Tensor labels_of(const Rows& rows) {
  return at::from_blob(const_cast<std::int64_t*>(rows.labels.data()), {count_of(rows)}, at::kLong).clone();
}

// Rows of float32, wherever they begin.
torch::Tensor floats_of(const Rows& rows) {
  torch::Tensor values = at::empty(sizes_of(rows), at::kFloat);
  std::memcpy(values.mutable_data_ptr(), rows.images.data(), values.nbytes());
  return values;
}

torch::Tensor to_image(const Rows& rows, const InputOptions& options) {
  const at::ScalarType type = type_of(options.precision);
  torch::Tensor values = rows.type == ElementType::f32
                             ? floats_of(rows).to(type)
                             : bytes_of(rows, sizes_of(rows)).to(type).div_(255).sub_(0.5).div_(0.5);
  if (options.image_size != 0 && (values.size(2) != options.image_size || values.size(3) != options.image_size))
    values = at::upsample_bilinear2d(values, {options.image_size, options.image_size}, /*align_corners=*/false);
  const auto channels = static_cast<std::int64_t>(options.channels);
  return channels > 1 && values.size(1) == 1 ? values.repeat({1, channels, 1, 1}) : values;
}

Inputs to_bytes(const Rows& rows) {
  const auto width = static_cast<std::int64_t>(rows.shape.bytes());
  const torch::Tensor text = bytes_of(rows, {count_of(rows), width}).to(at::kLong);
  return {text.narrow(1, 0, width - 1).contiguous(), text.narrow(1, 1, width - 1).contiguous()};
}

void check(const Rows& rows, const InputOptions& options) {
  if (rows.type != ElementType::u8 && rows.type != ElementType::f32)
    raise<RequestError>("rows are of {}, and models take u8 or f32", name_of(rows.type));
  if (rows.images.size() != rows.labels.size() * rows.shape.bytes() * size_of(rows.type))
    raise<RequestError>("{} rows of {} {} elements are {} bytes, and there are {}", rows.labels.size(),
                        rows.shape.bytes(), name_of(rows.type),
                        rows.labels.size() * rows.shape.bytes() * size_of(rows.type), rows.images.size());
  if (options.kind == InputKind::bytes && (rows.type != ElementType::u8 || rows.shape.bytes() < 2))
    raise<RequestError>(
        "a model of text takes rows of 2 bytes or more, and the data has {} elements of {}: choose a "
        "text (--data text:PATH)",
        rows.shape.bytes(), name_of(rows.type));
}

}  // namespace

InputOptions input_options(const ModelSpec& spec, ElementType type, int image_size, Precision precision) {
  const InputNeeds needs = needs_of(spec);
  const bool raw = spec.kind == ModelSpec::Kind::script && type == ElementType::f32;
  return {.kind = raw ? InputKind::raw : needs.kind,
          .channels = needs.channels,
          .image_size = image_size,
          .precision = precision};
}

Inputs to_inputs(const Rows& rows, const InputOptions& options) {
  check(rows, options);
  switch (options.kind) {
    case InputKind::image:
      return {to_image(rows, options), labels_of(rows)};
    case InputKind::bytes:
      return to_bytes(rows);
    case InputKind::raw:
      break;
  }
  const torch::Tensor values = rows.type == ElementType::f32 ? floats_of(rows) : bytes_of(rows, sizes_of(rows));
  return {values.to(type_of(options.precision)), labels_of(rows)};
}

}  // namespace sumpter
