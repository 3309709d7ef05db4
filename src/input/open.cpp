#include <array>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <system_error>

#include "base/error.h"
#include "input/cifar.h"
#include "input/idx.h"
#include "input/synthetic.h"
#include "input/text.h"
#include "sumpter/input.h"

namespace sumpter {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSynthetic = "synthetic", kText = "text";
constexpr int kUsualClasses = 10;  // of synthetic data

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

// What stands behind "synthetic:". Nothing where a key does not occur.
struct Settings {
  std::optional<std::size_t> rows, test_rows;
  std::optional<ImageShape> shape;
  std::optional<int> classes;
  std::optional<std::uint64_t> seed;
};

template <typename T>
void set_once(std::optional<T>& setting, T value, std::string_view key) {
  if (setting) raise<RequestError>("synthetic: {} is given twice; give it once", key);
  setting = value;
}

Settings parse_settings(std::string_view text, bool is_text) {
  Settings settings;
  while (!text.empty()) {
    std::string_view value = take_word(text, ',');
    const std::string_view key = take_word(value, '=');
    if (key == "rows") {
      set_once(settings.rows, parse_number<std::size_t>(value, key), key);
    } else if (key == "test_rows") {
      set_once(settings.test_rows, parse_number<std::size_t>(value, key), key);
    } else if (key == "seed") {
      set_once(settings.seed, parse_number<std::uint64_t>(value, key), key);
    } else if (key == "shape" && !is_text) {
      set_once(settings.shape, parse_shape(value), key);
    } else if (key == "classes" && !is_text) {
      set_once(settings.classes, parse_number<int>(value, key), key);
    } else {
      raise<RequestError>("synthetic: '{}' is not a setting{}; there are {}", key, is_text ? " of text" : "",
                          is_text ? "rows, test_rows and seed" : "rows, test_rows, shape, classes and seed");
    }
  }
  return settings;
}

DatasetPair open_synthetic(std::string_view text, const OpenOptions& options) {
  const Settings settings = parse_settings(text, options.text);
  const std::size_t rows = settings.rows.value_or(60'000);
  const int classes = settings.classes.value_or(options.classes != 0 ? options.classes : kUsualClasses);
  const std::size_t test_rows = settings.test_rows.value_or(10'000);
  const auto make = [&](std::size_t count, std::size_t first_item) -> std::shared_ptr<const Dataset> {
    const std::uint64_t seed = settings.seed.value_or(0);
    if (options.text) {
      return make_synthetic_text({.rows = count, .context = options.context, .seed = seed, .first_item = first_item});
    }
    return make_synthetic({.rows = count,
                           .shape = settings.shape.value_or(options.synthetic_shape),
                           .classes = classes,
                           .seed = seed,
                           .first_item = first_item});
  };
  return {.train = make(rows, 0), .test = test_rows == 0 ? nullptr : make(test_rows, rows)};
}

DatasetPair open_images_file(const fs::path& images, int classes) {
  constexpr std::string_view kImages = "images-idx3";
  std::string name = images.filename().string();
  const std::size_t at = name.find(kImages);
  if (at == std::string::npos) {
    raise<RequestError>(
        "{}: the name of an IDX images file has 'images-idx3' in it, as in train-images-idx3-ubyte; for text write "
        "text:{}",
        images.string(), images.string());
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
  std::string_view rest = text;
  const std::string_view kind = take_word(rest, ':');
  if (kind == kSynthetic) return open_synthetic(rest, options);
  const bool says_text = kind == kText && kind.size() < text.size();
  const fs::path path{std::string(says_text ? rest : text)};
  std::error_code ignored;  // what cannot be looked at is not there
  if (!fs::exists(path, ignored)) {
    raise<RequestError>(
        "'{}' is no data set: it is not 'synthetic', and there is no directory or file of this name; a text is text:"
        "PATH",
        says_text ? rest : text);
  }
  if (says_text || options.text) return open_text(path, {.context = options.context, .seed = options.seed});
  if (!fs::is_directory(path, ignored)) return open_images_file(path, options.classes);
  if (is_idx_directory(path)) return open_idx_directory(path, options.classes);
  if (const auto cifar = find_cifar(path)) return open_cifar(*cifar);
  raise<RequestError>(
      "{}: no data set in this directory; looked for train-images-idx3-ubyte, plain or with .gz, for data_batch_1.bin "
      "(CIFAR-10) and train.bin (CIFAR-100), also in cifar-10-batches-bin and cifar-100-binary; for text write text:{}",
      path.string(), path.string());
}

}  // namespace sumpter
