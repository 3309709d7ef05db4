#include "train/catalogue.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"

namespace sumpter {
namespace {

using Kind = ModelSpec::Kind;

constexpr std::uint64_t kLenetParameters = 431'080;
constexpr std::int64_t kLargestSize = std::int64_t{1} << 20;
constexpr std::int64_t kUsualClasses = 1000;  // ImageNet's
constexpr std::int64_t kBytes = 256;
constexpr std::string_view kMlpPrefix = "mlp:", kGptPrefix = "gpt:";

const std::vector<std::int64_t> kMlp = {784, 512, 512, 10};
const std::vector<std::int64_t> kMlp60m = {3072, 4096, 4096, 4096, 3328, 10};
const std::vector<std::int64_t> kGpt = {4, 128, 4, 128};

// torchvision's models: a fixed part and, for each class, the rows of the last layers (googlenet has three).
struct VisionFacts {
  Kind kind;
  std::string_view name, description;
  std::uint64_t fixed_parameters, parameters_of_class;
  std::size_t smallest_side;  // with less, a pooling leaves nothing
};
constexpr VisionFacts kVision[] = {
    {Kind::alexnet, "alexnet", "AlexNet: 5 convolutions, 3 linear layers, dropout", 57'003'840, 4097, 63},
    {Kind::googlenet, "googlenet", "GoogLeNet with its two auxiliary heads, batch normalization", 9'929'888, 3075, 15},
    {Kind::vgg16, "vgg16", "VGG-16: 13 convolutions, 3 linear layers, dropout", 134'260'544, 4097, 32},
    {Kind::resnet18, "resnet18", "ResNet-18, batch normalization", 11'176'512, 513, 1},
    {Kind::resnet50, "resnet50", "ResNet-50, batch normalization", 23'508'032, 2049, 1},
    {Kind::resnet152, "resnet152", "ResNet-152, batch normalization", 58'143'808, 2049, 1},
};

const VisionFacts* vision_facts(Kind kind) {
  const auto* found = std::ranges::find(kVision, kind, &VisionFacts::kind);
  return found == std::end(kVision) ? nullptr : found;
}

// What a list of sizes is called in a message.
struct SizeList {
  std::string_view prefix, noun, example;
};
constexpr SizeList kMlpList{kMlpPrefix, "width", "mlp:784-512-10"};
constexpr SizeList kGptList{kGptPrefix, "number", "gpt:4-128-4-128 (layers, width, heads, context)"};

std::vector<std::int64_t> parse_sizes(std::string_view text, const SizeList& list, std::string_view what) {
  std::vector<std::int64_t> sizes;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('-', begin), text.size());
    const char* last = text.data() + end;
    std::int64_t size = 0;
    const auto [stop, error] = std::from_chars(text.data() + begin, last, size);
    if (error != std::errc{} || stop != last || size < 1 || size > kLargestSize)
      raise<RequestError>("{}: '{}' in {}{} is not a {} from 1 to {}; an example is {}", what,
                          text.substr(begin, end - begin), list.prefix, text, list.noun, kLargestSize, list.example);
    sizes.push_back(size);
    begin = end + 1;
  }
  return sizes;
}

ModelSpec mlp_spec(std::vector<std::int64_t> sizes, std::string_view name, std::string_view what) {
  if (sizes.size() < 2)
    raise<RequestError>("{}: {} has one width and needs at least those of input and output, as in mlp:784-512-10", what,
                        name);
  const std::int64_t outputs = sizes.back();
  return {.kind = Kind::mlp, .sizes = std::move(sizes), .name = std::string(name), .outputs = outputs, .path = {}};
}

ModelSpec gpt_spec(std::vector<std::int64_t> sizes, std::string_view name, std::string_view what) {
  if (sizes.size() != 4)
    raise<RequestError>("{}: {} has {} numbers and needs 4, as in {}", what, name, sizes.size(), kGptList.example);
  if (sizes[1] % sizes[2] != 0)
    raise<RequestError>("{}: in {} a width of {} cannot be shared by {} heads: choose a multiple of the heads", what,
                        name, sizes[1], sizes[2]);
  return {.kind = Kind::gpt, .sizes = std::move(sizes), .name = std::string(name), .outputs = kBytes, .path = {}};
}

std::uint64_t mlp_parameters(const std::vector<std::int64_t>& sizes) {
  std::uint64_t total = 0;
  for (std::size_t i = 1; i < sizes.size(); ++i)
    total += static_cast<std::uint64_t>(sizes[i - 1] + 1) * static_cast<std::uint64_t>(sizes[i]);
  return total;
}

// Of a layer: attention's 3w * w + 3w and w * w + w, the feed-forward's 8w * w + 5w, and two norms of 2w.
std::uint64_t gpt_parameters(const std::vector<std::int64_t>& sizes) {
  const auto layers = static_cast<std::uint64_t>(sizes[0]), width = static_cast<std::uint64_t>(sizes[1]);
  const auto context = static_cast<std::uint64_t>(sizes[3]);
  return layers * (12 * width * width + 13 * width) + width * (2 * kBytes + context + 2);
}

std::string text_of(const ImageShape& shape) {
  return fmt::format("{}x{}x{}", shape.channels, shape.height, shape.width);
}

// The data's shape, and what becomes of it where images are resized.
std::string found_text(const ImageShape& shape, int image_size) {
  if (image_size == 0) return text_of(shape);
  return fmt::format("{}, resized to {}x{}", text_of(shape), image_size, image_size);
}

void check_image(const ModelSpec& spec, const ImageShape& shape, int image_size) {
  const InputNeeds needs = needs_of(spec);
  const auto side = static_cast<std::size_t>(image_size);
  const ImageShape seen = image_size == 0 ? shape : ImageShape{shape.channels, side, side};
  const std::string found = found_text(shape, image_size);
  if (spec.kind == Kind::lenet && seen != ImageShape{1, 28, 28})
    raise<RequestError>("model {} takes images of 1x28x28 and the data has {}: choose another model or other data",
                        spec.name, found);
  if (spec.kind == Kind::mlp && static_cast<std::int64_t>(seen.bytes()) != spec.sizes.front())
    raise<RequestError>(
        "model {} takes {} values per image and the data has {} = {}: choose an mlp of that width, as in mlp:{}-512-{}",
        spec.name, spec.sizes.front(), found, seen.bytes(), seen.bytes(), spec.outputs);
  if (needs.channels == 3 && shape.channels != 3 && shape.channels != 1)
    raise<RequestError>(
        "model {} takes images of 3 channels, or of 1, which it repeats, and the data has {}: choose "
        "other data",
        spec.name, found);
  if (std::min(seen.height, seen.width) < needs.smallest_side)
    raise<RequestError>("model {} takes images of {}x{} or larger and the data has {}: resize them (--image-size {})",
                        spec.name, needs.smallest_side, needs.smallest_side, found, needs.smallest_side);
}

void check_text(const ModelSpec& spec, const ImageShape& shape, int image_size) {
  const std::size_t context = needs_of(spec).context;
  if (shape.channels != 1 || shape.height != 1 || shape.width < 2)
    raise<RequestError>("model {} reads text and the data has images of {}: choose a text (--data text:PATH)",
                        spec.name, text_of(shape));
  if (image_size != 0)
    raise<RequestError>("model {} reads text, which has no images to resize: leave out --image-size", spec.name);
  if (shape.width - 1 > context)
    raise<RequestError>(
        "model {} reads {} bytes at a time and rows of the data have {}: choose a model with that "
        "context, as in gpt:{}-{}-{}-{}, or shorter rows",
        spec.name, context, shape.width - 1, spec.sizes[0], spec.sizes[1], spec.sizes[2], shape.width - 1);
}

}  // namespace

std::uint64_t ModelSpec::parameters() const {
  if (const VisionFacts* facts = vision_facts(kind))
    return facts->fixed_parameters + facts->parameters_of_class * static_cast<std::uint64_t>(outputs);
  switch (kind) {
    case Kind::lenet:
      return kLenetParameters;
    case Kind::mlp:
      return mlp_parameters(sizes);
    case Kind::gpt:
      return gpt_parameters(sizes);
    default:
      return 0;
  }
}

ModelSpec ModelSpec::with_classes(std::int64_t classes) const {
  ModelSpec spec = *this;
  if (vision_facts(kind) != nullptr) spec.outputs = classes;
  return spec;
}

ModelSpec parse_model(std::string_view text, std::string_view what) {
  if (text == "lenet") return {.kind = Kind::lenet, .sizes = {}, .name = "lenet", .outputs = 10, .path = {}};
  if (text == "mlp") return mlp_spec(kMlp, text, what);
  if (text == "mlp60m") return mlp_spec(kMlp60m, text, what);
  if (text == "gpt") return gpt_spec(kGpt, text, what);
  for (const VisionFacts& facts : kVision)
    if (text == facts.name)
      return {.kind = facts.kind, .sizes = {}, .name = std::string(text), .outputs = kUsualClasses, .path = {}};
  // A path may begin with anything, a prefix's letters too.
  if (text.ends_with(".pt") || text.ends_with(".ts"))
    return {.kind = Kind::script, .sizes = {}, .name = std::string(text), .outputs = 0, .path = text};
  if (text.starts_with(kMlpPrefix))
    return mlp_spec(parse_sizes(text.substr(kMlpPrefix.size()), kMlpList, what), text, what);
  if (text.starts_with(kGptPrefix))
    return gpt_spec(parse_sizes(text.substr(kGptPrefix.size()), kGptList, what), text, what);
  std::vector<std::string> names;
  for (const ModelInfo& model : built_in_models()) names.push_back(model.name);
  raise<RequestError>(
      "{}: there is no model '{}'; there are {}, mlp:SIZES (mlp:784-512-10), gpt:LAYERS-WIDTH-HEADS-CONTEXT "
      "(gpt:4-128-4-128) and TorchScript files, whose names end in .pt or .ts",
      what, text, fmt::join(names, ", "));
}

InputNeeds needs_of(const ModelSpec& spec) {
  if (const VisionFacts* facts = vision_facts(spec.kind)) return {.channels = 3, .smallest_side = facts->smallest_side};
  if (spec.kind == Kind::lenet) return {.channels = 1, .smallest_side = 28};
  if (spec.kind == Kind::gpt) return {.kind = InputKind::bytes, .context = static_cast<std::size_t>(spec.sizes[3])};
  return {};
}

ImageShape usual_shape(const ModelSpec& spec) {
  constexpr ImageShape kGrey{1, 28, 28}, kColour{3, 32, 32}, kImageNet{3, 224, 224};
  switch (spec.kind) {
    case Kind::lenet:
      return kGrey;
    case Kind::gpt:
      return {1, 1, needs_of(spec).context + 1};
    case Kind::mlp:
      break;
    default:
      return kImageNet;
  }
  const auto width = static_cast<std::size_t>(spec.sizes.front());
  for (const ImageShape& shape : {kGrey, kColour})
    if (shape.bytes() == width) return shape;
  return {1, 1, width};
}

void check_input(const ModelSpec& spec, const ImageShape& shape, int classes, int image_size) {
  if (spec.kind == Kind::script) return;
  if (needs_of(spec).kind == InputKind::bytes)
    check_text(spec, shape, image_size);
  else
    check_image(spec, shape, image_size);
  if (classes > spec.outputs)
    raise<RequestError>("model {} tells {} classes apart and the data has {}: choose a model with an output for each",
                        spec.name, spec.outputs, classes);
}

std::vector<ModelInfo> built_in_models() {
  std::vector<ModelInfo> models;
  models.push_back({"lenet", "1x28x28", "Caffe's LeNet: convolutions of 20 and 50 maps, 500, 10", kLenetParameters});
  const auto add_mlp = [&](const char* name, const std::vector<std::int64_t>& sizes) {
    models.push_back({name, fmt::format("{} values", sizes.front()),
                      fmt::format("{}, ReLU between", fmt::join(sizes, "-")), mlp_parameters(sizes)});
  };
  add_mlp("mlp", kMlp);
  add_mlp("mlp60m", kMlp60m);
  for (const VisionFacts& facts : kVision)
    models.push_back({std::string(facts.name),
                      facts.smallest_side > 1 ? fmt::format("3x{0}x{0} or larger", facts.smallest_side) : "3 channels",
                      std::string(facts.description),
                      facts.fixed_parameters + facts.parameters_of_class * std::uint64_t{kUsualClasses}});
  models.push_back({"gpt", fmt::format("{} bytes", kGpt[3]),
                    fmt::format("a GPT over bytes: {} layers, width {}, {} heads", kGpt[0], kGpt[1], kGpt[2]),
                    gpt_parameters(kGpt)});
  return models;
}

}  // namespace sumpter
