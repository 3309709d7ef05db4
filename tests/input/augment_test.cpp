#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <thread>
#include <tuple>

#include "input/random.h"
#include "input/ring.h"
#include "sumpter/error.h"
#include "sumpter/input.h"

namespace sumpter {
namespace {

// Every pixel of every item has a value of its own, none of them 0.
template <typename T>
class Pixels : public Dataset {
 public:
  explicit Pixels(const ImageShape& shape) : shape_(shape) {}

  static T pixel(std::size_t item, std::size_t number) { return static_cast<T>(1 + (item * 7 + number) % 200); }

  std::size_t size() const override { return 40; }
  ImageShape shape() const override { return shape_; }
  int classes() const override { return 40; }
  ElementType type() const override { return sizeof(T) == 1 ? ElementType::u8 : ElementType::f32; }
  std::int64_t get(const Item& item, std::span<std::uint8_t> image) const override {
    for (std::size_t i = 0; i < shape_.bytes(); ++i) {
      const T value = pixel(item.index, i);
      std::memcpy(image.subspan(i * sizeof(T), sizeof(T)).data(), &value, sizeof(T));
    }
    return static_cast<std::int64_t>(item.index);
  }

 private:
  const ImageShape shape_;
};

template <typename T>
std::vector<T> read(const Dataset& set, const Item& item) {
  std::vector<T> pixels(set.shape().bytes());
  std::vector<std::uint8_t> bytes(set.image_bytes());
  EXPECT_EQ(set.get(item, bytes), static_cast<std::int64_t>(item.index));
  std::memcpy(pixels.data(), bytes.data(), bytes.size());
  return pixels;
}

struct Look {
  std::ptrdiff_t down = 0, right = 0;
  bool flip = false;
  auto operator<=>(const Look&) const = default;
};

// From the words: pad with zeros, cut, mirror.
template <typename T>
std::vector<T> looked(const std::vector<T>& image, const ImageShape& shape, const Look& look) {
  const auto height = static_cast<std::ptrdiff_t>(shape.height), width = static_cast<std::ptrdiff_t>(shape.width);
  std::vector<T> out(image.size());
  for (std::ptrdiff_t c = 0; c < static_cast<std::ptrdiff_t>(shape.channels); ++c) {
    for (std::ptrdiff_t y = 0; y < height; ++y) {
      for (std::ptrdiff_t x = 0; x < width; ++x) {
        const std::ptrdiff_t from_y = y - look.down;
        const std::ptrdiff_t from_x = (look.flip ? width - 1 - x : x) - look.right;
        if (from_y < 0 || from_y >= height || from_x < 0 || from_x >= width) continue;
        out[static_cast<std::size_t>((c * height + y) * width + x)] =
            image[static_cast<std::size_t>((c * height + from_y) * width + from_x)];
      }
    }
  }
  return out;
}

// The one look that explains what the set shows; an error where there is none.
template <typename T>
Look look_of(const Dataset& inner, const Dataset& set, const Item& item, int padding) {
  const std::vector<T> image = read<T>(inner, item), shown = read<T>(set, item);
  for (std::ptrdiff_t down = -padding; down <= padding; ++down) {
    for (std::ptrdiff_t right = -padding; right <= padding; ++right) {
      for (const bool flip : {false, true}) {
        const Look look{.down = down, .right = right, .flip = flip};
        if (looked(image, inner.shape(), look) == shown) return look;
      }
    }
  }
  ADD_FAILURE() << "item " << item.index << " in epoch " << item.epoch << " is no crop of its image";
  return {};
}

template <typename T>
void expect_all_looks(const ImageShape& shape, int padding, bool flip) {
  SCOPED_TRACE(testing::Message() << "padding " << padding << ", flip " << flip);
  const auto inner = std::make_shared<Pixels<T>>(shape);
  const auto set = augment(inner, {.crop_padding = padding, .flip = flip, .seed = 5});
  EXPECT_EQ(set->shape(), shape);
  EXPECT_EQ(set->size(), 40U);
  EXPECT_EQ(set->classes(), 40);
  EXPECT_EQ(set->type(), inner->type());
  std::map<Look, int> seen;
  for (std::uint64_t epoch = 0; epoch < 25; ++epoch) {
    for (std::size_t index = 0; index < 40; ++index) {
      ++seen[look_of<T>(*inner, *set, {.index = index, .epoch = epoch}, padding)];
    }
  }
  EXPECT_EQ(seen.size(), static_cast<std::size_t>((2 * padding + 1) * (2 * padding + 1) * (flip ? 2 : 1)));
}

TEST(Augment, ShowsEveryCropAndFlipAndNothingElse) {
  for (const ImageShape& shape : {ImageShape{3, 5, 6}, ImageShape{1, 4, 7}}) {
    for (const bool flip : {false, true}) {
      expect_all_looks<std::uint8_t>(shape, 2, flip);
      expect_all_looks<float>(shape, 1, flip);
      if (flip) expect_all_looks<std::uint8_t>(shape, 0, flip);
    }
  }
}

TEST(Augment, DrawsFromSeedEpochAndIndexAsWritten) {
  const ImageShape shape{.channels = 2, .height = 6, .width = 5};
  const auto inner = std::make_shared<Pixels<std::uint8_t>>(shape);
  const auto set = augment(inner, {.crop_padding = 3, .flip = true, .seed = 12});
  for (const Item& item : {Item{0, 0}, Item{1, 0}, Item{0, 1}, Item{39, 1'000'000'007}}) {
    Random random(stream_seed(stream_seed(stream_seed(12, kAugmentStream), item.epoch), item.index));
    Look look;
    look.down = 3 - static_cast<std::ptrdiff_t>(random.below(7));
    look.right = 3 - static_cast<std::ptrdiff_t>(random.below(7));
    look.flip = random.below(2) == 1;
    EXPECT_EQ(read<std::uint8_t>(*set, item), looked(read<std::uint8_t>(*inner, item), shape, look));
  }
}

TEST(Augment, FlippedTwiceIsTheImage) {
  for (const std::size_t width : {1, 2, 7, 8}) {
    const ImageShape shape{.channels = 2, .height = 3, .width = width};
    const auto inner = std::make_shared<Pixels<std::uint8_t>>(shape);
    const auto once = augment(inner, {.flip = true, .seed = 4});
    const auto twice = augment(once, {.flip = true, .seed = 4});  // the same numbers: the same items are flipped
    int flipped = 0;
    for (std::size_t index = 0; index < 40; ++index) {
      const Item item{.index = index, .epoch = 3};
      EXPECT_EQ(read<std::uint8_t>(*twice, item), read<std::uint8_t>(*inner, item));
      flipped += read<std::uint8_t>(*once, item) != read<std::uint8_t>(*inner, item) ? 1 : 0;
    }
    if (width > 1) {
      EXPECT_GT(flipped, 5);
      EXPECT_LT(flipped, 35);
    }
  }
}

TEST(Augment, IsTheSameWhoeverLoadsIt) {
  const auto set = augment(std::make_shared<Pixels<std::uint8_t>>(ImageShape{3, 8, 8}),
                           {.crop_padding = 2, .flip = true, .seed = 9});
  const auto all_rows = [&](int replicas, int preload, int loaders) {
    BatchRing ring(set, {.replicas = replicas,
                         .batch_size = 8,
                         .seed = 2,
                         .preload = preload,
                         .loaders = loaders,
                         .steps = 10});  // two epochs
    std::map<std::tuple<std::uint64_t, int>, std::vector<std::uint8_t>> rows;
    std::mutex mutex;
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < replicas; ++rank) {
      threads.emplace_back([&, rank] {
        while (const auto batch = ring.next(rank)) {
          const std::lock_guard lock(mutex);
          for (std::size_t row = 0; row < batch->rows(); ++row) {
            const auto image = batch->images().subspan(row * set->image_bytes(), set->image_bytes());
            rows[{batch->epoch(), static_cast<int>(batch->labels()[row])}].assign(image.begin(), image.end());
          }
        }
      });
    }
    threads.clear();
    return rows;
  };
  const auto rows = all_rows(1, 0, 1);
  ASSERT_EQ(rows.size(), 80U);
  EXPECT_EQ(all_rows(1, 2, 3), rows);
  EXPECT_EQ(all_rows(4, 2, 2), rows);
  int changed = 0;
  for (int label = 0; label < 40; ++label) changed += rows.at({0, label}) != rows.at({1, label}) ? 1 : 0;
  EXPECT_GT(changed, 30);  // of 40: one in 50 looks the same in two epochs
}

TEST(Augment, IsTheSetItselfWhereNothingIsAskedFor) {
  const std::shared_ptr<const Dataset> inner = std::make_shared<Pixels<std::uint8_t>>(ImageShape{1, 4, 4});
  EXPECT_EQ(augment(inner, {}), inner);
}

TEST(Augment, RefusesAPaddingThatMightHideTheImage) {
  const auto inner = std::make_shared<Pixels<std::uint8_t>>(ImageShape{1, 4, 9});
  EXPECT_NE(augment(inner, {.crop_padding = 3}), nullptr);
  for (const int padding : {-1, 4, 1'000'000'000}) {
    try {
      augment(inner, {.crop_padding = padding});
      ADD_FAILURE() << "accepted " << padding;
    } catch (const RequestError& error) {
      EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("padding of " + std::to_string(padding)),
                                               testing::HasSubstr("4x9"), testing::HasSubstr("0 to 3")));
    }
  }
}

}  // namespace
}  // namespace sumpter
