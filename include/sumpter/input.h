// What training reads: a set of labelled rows, by number. Derive from Dataset to train on data of your own. Sets
// compose: one that crops or flips wraps another one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "sumpter/spec.h"

namespace sumpter {

// Of one row. What is no image has one channel and a height of 1: a line of text is 1 x 1 x its bytes.
struct ImageShape {
  std::size_t channels = 0, height = 0, width = 0;

  std::size_t bytes() const { return channels * height * width; }  // where elements are u8
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

  virtual std::size_t size() const = 0;                         // items
  virtual ImageShape shape() const = 0;                         // of every image
  virtual int classes() const = 0;                              // labels are 0 to classes() - 1
  virtual ElementType type() const { return ElementType::u8; }  // of an image's elements: u8 or f32

  std::size_t image_bytes() const { return shape().bytes() * size_of(type()); }

  // Writes the image, channel by channel, row by row, into `image` (exactly image_bytes(), aligned to one element) and
  // returns the label. Any thread may call it, several at a time; it may block on a disk. Throws DataError where an
  // item is damaged, and goes on serving the other items. The same item gives the same bytes, whoever asks.
  virtual std::int64_t get(const Item& item, std::span<std::uint8_t> image) const = 0;
};

// What a run trains on, and what it is tested with.
struct DatasetPair {
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset> test;  // null where there is none
};

struct OpenOptions {
  // IDX files: labels must be below it; 0: one more than the largest label of the training and the test set. Synthetic
  // data: 0: 10. CIFAR and text have classes of their own.
  int classes = 0;
  ImageShape synthetic_shape{.channels = 3, .height = 32, .width = 32};  // where the text gives none
  bool text = false;          // the model reads text: a path is read as text, and synthetic data are text
  std::size_t context = 128;  // of text, in bytes
  std::uint64_t seed = 0;     // of the shifts of text windows
};

// One of
//   synthetic, or synthetic:key=value,... with rows, test_rows (0: no test set), seed (0 where it is not given)
//     and, but for text, shape (CxHxW) and classes; each key once;
//   text:PATH, a file or directory, or PATH alone where options.text: open_text with a test share of a tenth;
//   a directory with IDX files (train-images-idx3-ubyte, ...);
//   a directory with CIFAR-10 or CIFAR-100 in binary form, or with the directory that their archive unpacks to;
//   the images file of one IDX set, whose labels are looked for beside it: then there is no test set.
// Throws RequestError where the text is none of these, saying what was looked for, and as open_text where a text is too
// short; DataError where files are damaged.
DatasetPair open_dataset(std::string_view text, const OpenOptions& options = {});

struct AugmentOptions {
  int crop_padding = 0;  // pixels of zeros around the image, of which a random part of its own size is cut; 0: none
  bool flip = false;     // every other image, drawn at random, is mirrored left to right, after the crop
  std::uint64_t seed = 0;
};

// Wraps the set: torchvision's RandomCrop(size, padding) and RandomHorizontalFlip, with numbers of its own, drawn from
// seed, epoch and index, so that a row is the same whoever loads it. The set itself where nothing is asked for. Throws
// RequestError where the padding is negative or as large as a side of the image: a crop might miss all of it.
std::shared_ptr<const Dataset> augment(std::shared_ptr<const Dataset> dataset, const AugmentOptions& options);

}  // namespace sumpter
