#include "input/synthetic.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "input/random.h"

namespace sumpter {
namespace {

constexpr std::size_t kBlock = 4;  // pixels: coarse enough to survive convolutions and pooling
constexpr std::uint64_t kClassStreams = std::uint64_t{1} << 63;  // items have the streams below

// The mean of each of the eight bytes, rounded down: a + b = 2 * (a & b) + (a ^ b).
std::uint64_t mean_of_bytes(std::uint64_t a, std::uint64_t b) {
  return (a & b) + (((a ^ b) >> 1) & 0x7F7F7F7F7F7F7F7F);
}

class Synthetic : public Dataset {
 public:
  explicit Synthetic(const SyntheticOptions& options) : options_(options) {}

  std::size_t size() const override { return options_.rows; }
  ImageShape shape() const override { return options_.shape; }
  int classes() const override { return options_.classes; }

  std::int64_t get(const Item& item, std::span<std::uint8_t> image) const override {
    Random noise(stream_seed(options_.seed, options_.first_item + item.index));
    const std::uint64_t label = noise.below(static_cast<std::uint64_t>(options_.classes));
    Random pattern(stream_seed(options_.seed, kClassStreams + label));
    std::vector<std::uint8_t> line(options_.shape.width);
    for (std::size_t channel = 0; channel < options_.shape.channels; ++channel) {
      for (std::size_t y = 0; y < options_.shape.height; ++y) {
        if (y % kBlock == 0) draw_blocks(pattern, line);
        add_noise(line, noise, image.subspan((channel * options_.shape.height + y) * line.size(), line.size()));
      }
    }
    return static_cast<std::int64_t>(label);
  }

 private:
  // One line of the class's pattern: runs of kBlock pixels of the same value.
  static void draw_blocks(Random& pattern, std::span<std::uint8_t> line) {
    for (std::size_t begin = 0; begin < line.size(); begin += kBlock) {
      const std::span<std::uint8_t> block = line.subspan(begin, std::min(kBlock, line.size() - begin));
      std::ranges::fill(block, static_cast<std::uint8_t>(pattern.next()));
    }
  }

  static void add_noise(std::span<const std::uint8_t> line, Random& noise, std::span<std::uint8_t> out) {
    for (std::size_t begin = 0; begin < line.size(); begin += sizeof(std::uint64_t)) {
      const std::size_t bytes = std::min(sizeof(std::uint64_t), line.size() - begin);
      std::uint64_t word = 0;
      std::memcpy(&word, line.data() + begin, bytes);
      word = mean_of_bytes(word, noise.next());
      std::memcpy(out.data() + begin, &word, bytes);
    }
  }

  const SyntheticOptions options_;
};

class SyntheticText : public Dataset {
 public:
  explicit SyntheticText(const SyntheticTextOptions& options) : options_(options) {
    for (std::size_t symbol = 0; symbol < kSymbols; ++symbol) {
      Random random(stream_seed(options.seed, kClassStreams + symbol));
      auto& followers = followers_[symbol];
      for (auto place = followers.begin(); place != followers.end();) {
        *place = static_cast<std::uint8_t>(random.below(kSymbols));
        if (std::find(followers.begin(), place, *place) == place) ++place;  // all differ
      }
    }
  }

  std::size_t size() const override { return options_.rows; }
  ImageShape shape() const override { return {.channels = 1, .height = 1, .width = options_.context + 1}; }
  int classes() const override { return 256; }

  std::int64_t get(const Item& item, std::span<std::uint8_t> image) const override {
    Random random(stream_seed(options_.seed, options_.first_item + item.index));
    auto symbol = static_cast<std::uint8_t>(random.below(kSymbols));
    for (std::uint8_t& byte : image) {
      byte = static_cast<std::uint8_t>(kFirstByte + symbol);
      symbol = followers_[symbol][random.below(kFollowers)];
    }
    return 0;
  }

 private:
  static constexpr std::size_t kSymbols = 64, kFollowers = 4;
  static constexpr std::uint8_t kFirstByte = ' ';  // the 64 bytes that follow can be read

  const SyntheticTextOptions options_;
  std::array<std::array<std::uint8_t, kFollowers>, kSymbols> followers_{};
};

constexpr std::size_t kMostRows = std::size_t{1} << 40;

// Products of the sides stay below the limit at every step, so nothing overflows.
bool within_limit(const ImageShape& shape) {
  return shape.channels <= kGiB && shape.height <= kGiB / shape.channels &&
         shape.width <= kGiB / (shape.channels * shape.height);
}

void check_rows(std::size_t rows, std::uint64_t first_item) {
  if (rows <= kMostRows && first_item <= kMostRows) return;
  raise<RequestError>("synthetic data of {} rows was asked for; there may be 2^40", rows);
}

}  // namespace

std::shared_ptr<const Dataset> make_synthetic(const SyntheticOptions& options) {
  const ImageShape& shape = options.shape;
  if (options.rows == 0 || options.classes < 1 || shape.channels == 0 || shape.height == 0 || shape.width == 0) {
    raise<RequestError>(
        "synthetic data of {} rows, shape {}x{}x{} and {} classes was asked for; each must be at least 1", options.rows,
        shape.channels, shape.height, shape.width, options.classes);
  }
  check_rows(options.rows, options.first_item);
  if (!within_limit(shape)) {
    raise<RequestError>("synthetic images of {}x{}x{} bytes were asked for; an image may have 1 GiB", shape.channels,
                        shape.height, shape.width);
  }
  return std::make_shared<Synthetic>(options);
}

std::shared_ptr<const Dataset> make_synthetic_text(const SyntheticTextOptions& options) {
  if (options.rows == 0 || options.context == 0 || options.context > kGiB) {
    raise<RequestError>(
        "synthetic text of {} rows with a context of {} bytes was asked for; there must be at least 1 of each, and at "
        "most 2^30 bytes",
        options.rows, options.context);
  }
  check_rows(options.rows, options.first_item);
  return std::make_shared<SyntheticText>(options);
}

}  // namespace sumpter
