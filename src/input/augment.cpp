#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "input/random.h"
#include "sumpter/input.h"

namespace sumpter {
namespace {

// How one row is changed.
struct Change {
  std::ptrdiff_t down = 0, right = 0;  // the image moves by so many pixels
  bool flip = false;
  bool operator==(const Change&) const = default;
};

// One line of pixels, moved; zeros come in.
void move_line(std::span<const std::uint8_t> line, std::ptrdiff_t right, std::size_t pixel,
               std::span<std::uint8_t> out) {
  const std::size_t shift = static_cast<std::size_t>(right < 0 ? -right : right) * pixel;
  const std::size_t kept = line.size() - shift;
  if (right >= 0) {
    std::memset(out.data(), 0, shift);
    std::memcpy(out.data() + shift, line.data(), kept);
  } else {
    std::memcpy(out.data(), line.data() + shift, kept);
    std::memset(out.data() + kept, 0, shift);
  }
}

void flip_line(std::span<std::uint8_t> line, std::size_t pixel) {
  for (std::size_t left = 0, right = line.size() - pixel; left < right; left += pixel, right -= pixel) {
    std::swap_ranges(line.begin() + static_cast<std::ptrdiff_t>(left),
                     line.begin() + static_cast<std::ptrdiff_t>(left + pixel),
                     line.begin() + static_cast<std::ptrdiff_t>(right));
  }
}

class Augmented : public Dataset {
 public:
  Augmented(std::shared_ptr<const Dataset> dataset, const AugmentOptions& options)
      : dataset_(std::move(dataset)), options_(options), shape_(dataset_->shape()), pixel_(size_of(dataset_->type())) {}

  std::size_t size() const override { return dataset_->size(); }
  ImageShape shape() const override { return shape_; }
  int classes() const override { return dataset_->classes(); }
  ElementType type() const override { return dataset_->type(); }

  std::int64_t get(const Item& item, std::span<std::uint8_t> image) const override {
    const std::int64_t label = dataset_->get(item, image);
    apply(draw(item), image);
    return label;
  }

 private:
  // All three are drawn in any case: a flip does not depend on whether there is a crop.
  Change draw(const Item& item) const {
    Random random(stream_seed(stream_seed(stream_seed(options_.seed, kAugmentStream), item.epoch), item.index));
    const std::ptrdiff_t padding = options_.crop_padding;
    const auto places = static_cast<std::uint64_t>(2 * padding + 1);
    Change change;
    change.down = padding - static_cast<std::ptrdiff_t>(random.below(places));
    change.right = padding - static_cast<std::ptrdiff_t>(random.below(places));
    change.flip = random.below(2) == 1 && options_.flip;
    return change;
  }

  void apply(const Change& change, std::span<std::uint8_t> image) const {
    if (change == Change{}) return;
    const std::size_t line_bytes = shape_.width * pixel_;
    const auto height = static_cast<std::ptrdiff_t>(shape_.height);
    std::vector<std::uint8_t> whole(image.begin(), image.end());
    for (std::size_t channel = 0; channel < shape_.channels; ++channel) {
      for (std::ptrdiff_t y = 0; y < height; ++y) {
        const std::size_t first_line = channel * shape_.height;
        const std::span<std::uint8_t> out =
            image.subspan((first_line + static_cast<std::size_t>(y)) * line_bytes, line_bytes);
        const std::ptrdiff_t from = y - change.down;
        if (from < 0 || from >= height) {
          std::ranges::fill(out, std::uint8_t{0});
          continue;
        }
        const std::size_t line = (first_line + static_cast<std::size_t>(from)) * line_bytes;
        move_line(std::span(whole).subspan(line, line_bytes), change.right, pixel_, out);
        if (change.flip) flip_line(out, pixel_);
      }
    }
  }

  const std::shared_ptr<const Dataset> dataset_;
  const AugmentOptions options_;
  const ImageShape shape_;
  const std::size_t pixel_;  // bytes
};

}  // namespace

std::shared_ptr<const Dataset> augment(std::shared_ptr<const Dataset> dataset, const AugmentOptions& options) {
  const ImageShape shape = dataset->shape();
  const std::size_t side = std::min(shape.height, shape.width);
  if (options.crop_padding < 0 ||
      (options.crop_padding > 0 && static_cast<std::size_t>(options.crop_padding) >= side)) {
    raise<RequestError>("a crop with a padding of {} was asked for; for images of {}x{} it must be 0 to {}",
                        options.crop_padding, shape.height, shape.width, side == 0 ? 0 : side - 1);
  }
  if (options.crop_padding == 0 && !options.flip) return dataset;
  return std::make_shared<Augmented>(std::move(dataset), options);
}

}  // namespace sumpter
