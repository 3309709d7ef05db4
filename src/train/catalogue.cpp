#include "train/catalogue.h"

#include <fmt/ranges.h>

#include <charconv>

#include "base/error.h"

namespace sumpter {
namespace {

constexpr std::uint64_t kLenetParameters = 431'080;
constexpr std::int64_t kLargestWidth = std::int64_t{1} << 20;
constexpr std::string_view kMlpPrefix = "mlp:";

const std::vector<std::int64_t> kMlp = {784, 512, 512, 10};
const std::vector<std::int64_t> kMlp60m = {3072, 4096, 4096, 4096, 3328, 10};

std::vector<std::int64_t> parse_sizes(std::string_view text, std::string_view what) {
  std::vector<std::int64_t> sizes;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('-', begin), text.size());
    const char* last = text.data() + end;
    std::int64_t size = 0;
    const auto [stop, error] = std::from_chars(text.data() + begin, last, size);
    if (error != std::errc{} || stop != last || size < 1 || size > kLargestWidth)
      raise<RequestError>("{}: '{}' in mlp:{} is not a width from 1 to {}; an example is mlp:784-512-10", what,
                          text.substr(begin, end - begin), text, kLargestWidth);
    sizes.push_back(size);
    begin = end + 1;
  }
  if (sizes.size() < 2)
    raise<RequestError>("{}: mlp:{} has one width and needs at least those of input and output, as in mlp:784-512-10",
                        what, text);
  return sizes;
}

}  // namespace

std::uint64_t ModelSpec::parameters() const {
  if (kind == Kind::lenet) return kLenetParameters;
  std::uint64_t total = 0;
  for (std::size_t i = 1; i < sizes.size(); ++i)
    total += static_cast<std::uint64_t>(sizes[i - 1] + 1) * static_cast<std::uint64_t>(sizes[i]);
  return total;
}

std::int64_t ModelSpec::classes() const { return kind == Kind::lenet ? 10 : sizes.back(); }

ModelSpec parse_model(std::string_view text, std::string_view what) {
  const std::string name(text);
  if (text == "lenet") return {ModelSpec::Kind::lenet, {}, name};
  if (text == "mlp") return {ModelSpec::Kind::mlp, kMlp, name};
  if (text == "mlp60m") return {ModelSpec::Kind::mlp, kMlp60m, name};
  if (text.starts_with(kMlpPrefix))
    return {ModelSpec::Kind::mlp, parse_sizes(text.substr(kMlpPrefix.size()), what), name};
  raise<RequestError>("{}: there is no model '{}'; there are lenet, mlp, mlp60m and mlp:SIZES (mlp:784-512-10)", what,
                      text);
}

ImageShape usual_shape(const ModelSpec& spec) {
  constexpr ImageShape kGrey{1, 28, 28}, kColour{3, 32, 32};
  if (spec.kind == ModelSpec::Kind::lenet) return kGrey;
  const auto width = static_cast<std::size_t>(spec.sizes.front());
  for (const ImageShape& shape : {kGrey, kColour})
    if (shape.bytes() == width) return shape;
  return {1, 1, width};
}

std::vector<ModelInfo> built_in_models() {
  const auto mlp = [](const char* name, const std::vector<std::int64_t>& sizes) {
    return ModelInfo{name, fmt::format("{} values", sizes.front()),
                     fmt::format("{}, ReLU between", fmt::join(sizes, "-")), parse_model(name, name).parameters()};
  };
  return {{"lenet", "1x28x28", "Caffe's LeNet: convolutions of 20 and 50 maps, 500, 10", kLenetParameters},
          mlp("mlp", kMlp),
          mlp("mlp60m", kMlp60m)};
}

}  // namespace sumpter
