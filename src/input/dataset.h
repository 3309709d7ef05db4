// What training reads: a set of labelled images, by number. Sets compose: one that crops or flips wraps another one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace sumpter {

struct ImageShape {
  std::size_t channels = 0, height = 0, width = 0;

  std::size_t bytes() const { return channels * height * width; }
  bool operator==(const ImageShape&) const = default;
};

// One use of an item. Sets that augment draw their random numbers from both fields, so that a row is the same whoever
// loads it, and a run can start in the middle of an epoch; the others look at the index alone.
struct Item {
  std::size_t index = 0;  // below the set's size()
  std::uint64_t epoch = 0;
};

class Dataset {
 public:
  Dataset() = default;
  Dataset(const Dataset&) = delete;
  Dataset& operator=(const Dataset&) = delete;
  virtual ~Dataset() = default;

  virtual std::size_t size() const = 0;  // items
  virtual ImageShape shape() const = 0;  // of every image
  virtual int classes() const = 0;       // labels are 0 to classes() - 1

  // Writes the image, channel by channel, row by row, into `image` (exactly shape().bytes()) and returns the label.
  // Any thread may call it, several at a time; it may block on a disk. Throws DataError where an item is damaged, and
  // goes on serving the other items.
  virtual std::int64_t get(const Item& item, std::span<std::uint8_t> image) const = 0;
};

struct DatasetPair {
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset> test;  // null where there is none
};

}  // namespace sumpter
