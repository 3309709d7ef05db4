#include "input/open.h"

#include <array>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <system_error>

#include "base/error.h"
#include "input/idx.h"
#include "input/synthetic.h"

namespace sumpter {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSynthetic = "synthetic";

// Takes what stands before the separator, or all, off the front of `rest`.
std::string_view take_word(std::string_view& rest, char separator) {
  const std::size_t end = rest.find(separator);
  const std::string_view word = rest.substr(0, end);
  rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
  return word;
}

template <typename T>
T parse_number(std::string_view text, std::string_view key) {
  T number{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end) {
    raise<RequestError>("synthetic: {}: '{}' is not a whole number from 0 to {}", key, text,
                        std::numeric_limits<T>::max());
  }
  return number;
}

ImageShape parse_shape(std::string_view text) {
  std::array<std::size_t, 3> sides{};
  std::string_view rest = text;
  for (std::size_t& side : sides) side = parse_number<std::size_t>(take_word(rest, 'x'), "shape");
  if (!rest.empty() || text.ends_with('x'))
    raise<RequestError>("synthetic: shape: '{}' is not of the form 3x32x32", text);
  return {.channels = sides[0], .height = sides[1], .width = sides[2]};
}

DatasetPair open_synthetic(std::string_view settings, const OpenOptions& options) {
  SyntheticOptions train{.shape = options.synthetic_shape, .classes = options.classes};
  std::size_t test_rows = 10'000;
  while (!settings.empty()) {
    std::string_view value = take_word(settings, ',');
    const std::string_view key = take_word(value, '=');
    if (key == "rows") {
      train.rows = parse_number<std::size_t>(value, key);
    } else if (key == "test_rows") {
      test_rows = parse_number<std::size_t>(value, key);
    } else if (key == "shape") {
      train.shape = parse_shape(value);
    } else if (key == "classes") {
      train.classes = parse_number<int>(value, key);
    } else if (key == "seed") {
      train.seed = parse_number<std::uint64_t>(value, key);
    } else {
      raise<RequestError>("synthetic: '{}' is not a setting; there are rows, test_rows, shape, classes and seed", key);
    }
  }
  SyntheticOptions test = train;
  test.rows = test_rows;
  test.first_item = train.rows;
  return {.train = make_synthetic(train), .test = test_rows == 0 ? nullptr : make_synthetic(test)};
}

DatasetPair open_images_file(const fs::path& images, int classes) {
  constexpr std::string_view kImages = "images-idx3";
  std::string name = images.filename().string();
  const std::size_t at = name.find(kImages);
  if (at == std::string::npos) {
    raise<RequestError>("{}: the name of an IDX images file has 'images-idx3' in it, as in train-images-idx3-ubyte",
                        images.string());
  }
  name.replace(at, kImages.size(), "labels-idx1");
  if (name.ends_with(".gz")) name.resize(name.size() - 3);
  const fs::path wanted = images.parent_path() / name;
  const fs::path labels = plain_or_gzip(wanted);
  if (labels.empty()) {
    raise<RequestError>("{}: its labels are missing: there is neither {} nor the same with .gz", images.string(),
                        wanted.string());
  }
  return {.train = open_idx({.images = images, .labels = labels, .classes = classes}), .test = nullptr};
}

}  // namespace

DatasetPair open_dataset(std::string_view text, const OpenOptions& options) {
  std::string_view settings = text;
  if (take_word(settings, ':') == kSynthetic) return open_synthetic(settings, options);
  const fs::path path{std::string(text)};
  std::error_code ignored;  // what cannot be looked at is not there
  if (fs::is_directory(path, ignored)) {
    if (is_idx_directory(path)) return open_idx_directory(path, options.classes);
    raise<RequestError>("{}: no data set in this directory; looked for train-images-idx3-ubyte, plain or with .gz",
                        path.string());
  }
  if (fs::exists(path, ignored)) return open_images_file(path, options.classes);
  raise<RequestError>("'{}' is no data set: it is not 'synthetic', and there is no directory or file of this name",
                      text);
}

}  // namespace sumpter
