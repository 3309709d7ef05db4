#include "input/text.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "input/content.h"
#include "input/random.h"

namespace sumpter {
namespace {

namespace fs = std::filesystem;

using Text = std::shared_ptr<const std::vector<std::uint8_t>>;

constexpr int kByteValues = 256;

class TextWindows : public Dataset {
 public:
  // `bytes` is a stretch of `text`. Shifted windows need the room of one more.
  TextWindows(Text text, std::span<const std::uint8_t> bytes, const TextOptions& options, bool shifted)
      : text_(std::move(text)), bytes_(bytes), context_(options.context), seed_(options.seed), shifted_(shifted) {
    size_ = shifted ? bytes.size() / context_ - 1 : (bytes.size() - 1) / context_;
  }

  // What a set needs for one window.
  static std::size_t least_bytes(std::size_t context, bool shifted) { return shifted ? 2 * context : context + 1; }

  std::size_t size() const override { return size_; }
  ImageShape shape() const override { return {.channels = 1, .height = 1, .width = context_ + 1}; }
  int classes() const override { return kByteValues; }

  std::int64_t get(const Item& item, std::span<std::uint8_t> image) const override {
    std::memcpy(image.data(), bytes_.data() + item.index * context_ + shift(item.epoch), context_ + 1);
    return 0;
  }

 private:
  std::size_t shift(std::uint64_t epoch) const {
    if (!shifted_) return 0;
    return Random(stream_seed(stream_seed(seed_, kTextStream), epoch)).below(context_);
  }

  const Text text_;  // keeps the bytes
  const std::span<const std::uint8_t> bytes_;
  const std::size_t context_;
  const std::uint64_t seed_;
  const bool shifted_;
  std::size_t size_ = 0;
};

void check(const TextOptions& options) {
  if (options.context == 0) {
    raise<RequestError>("text: a context of 0 bytes: only models that read text, such as gpt, take a text");
  }
  if (options.context > kGiB) {
    raise<RequestError>("text: a context of {} bytes was asked for; it must be 1 to {}", options.context, kGiB);
  }
  if (!(options.test_share >= 0 && options.test_share < 1)) {
    raise<RequestError>("text: a test share of {} was asked for; it must be at least 0 and below 1",
                        options.test_share);
  }
}

std::vector<fs::path> files_of(const fs::path& directory) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->symlink_status().type() == fs::file_type::regular) files.push_back(entry->path());
  }
  if (error) raise<DataError>("{}: cannot be read: {}", directory.string(), error.message());
  if (files.empty()) raise<DataError>("{}: no text in this directory; it has no regular files", directory.string());
  std::ranges::sort(files);
  return files;
}

std::vector<std::uint8_t> read_text(const fs::path& path) {
  std::error_code ignored;  // reading the file says what is wrong with it
  if (!fs::is_directory(path, ignored)) return read_content(path);
  std::vector<std::uint8_t> text;
  for (const fs::path& file : files_of(path)) {
    const std::vector<std::uint8_t> content = read_content(file);
    text.insert(text.end(), content.begin(), content.end());
  }
  return text;
}

void check_length(const fs::path& path, std::string_view set, std::size_t bytes, std::size_t least,
                  const TextOptions& options) {
  if (bytes >= least) return;
  raise<RequestError>(
      "{}: too short: the {} set, with a test share of {}, has {} of its bytes, but needs {} for one window of a "
      "context of {}; give a longer text or choose a model with a shorter context",
      path.string(), set, options.test_share, bytes, least, options.context);
}

}  // namespace

DatasetPair open_text(const fs::path& path, const TextOptions& options) {
  check(options);
  const auto text = std::make_shared<const std::vector<std::uint8_t>>(read_text(path));
  if (text->empty()) raise<DataError>("{}: expected text, found 0 bytes", path.string());
  const auto test_bytes = static_cast<std::size_t>(std::floor(static_cast<double>(text->size()) * options.test_share));
  const std::span<const std::uint8_t> train = std::span(*text).first(text->size() - test_bytes);
  const std::span<const std::uint8_t> test = std::span(*text).last(test_bytes);
  check_length(path, "training", train.size(), TextWindows::least_bytes(options.context, true), options);
  if (options.test_share > 0) {
    check_length(path, "test", test.size(), TextWindows::least_bytes(options.context, false), options);
  }
  return {.train = std::make_shared<TextWindows>(text, train, options, true),
          .test = options.test_share > 0 ? std::make_shared<TextWindows>(text, test, options, false) : nullptr};
}

}  // namespace sumpter
