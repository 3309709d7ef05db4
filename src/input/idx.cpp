#include "input/idx.h"

#include <algorithm>
#include <array>
#include <optional>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "input/content.h"

namespace sumpter {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t kUnsignedBytes = 0x0800;  // the magic number's type; its low byte is the number of dimensions
constexpr int kImageDimensions = 3;
constexpr int kLabelDimensions = 1;

std::uint32_t read_number(ContentReader& reader, const std::string& name, std::size_t header_bytes) {
  std::array<std::uint8_t, 4> bytes{};
  const std::size_t got = reader.read(bytes);
  if (got < bytes.size()) {
    raise<DataError>("{}: expected an IDX header of {} bytes, but the file ends after {}", name, header_bytes,
                     reader.position());
  }
  return std::uint32_t{bytes[0]} << 24 | std::uint32_t{bytes[1]} << 16 | std::uint32_t{bytes[2]} << 8 | bytes[3];
}

// Header without values.
IdxArray read_header(ContentReader& reader, const std::string& name, int dimensions) {
  const std::size_t header_bytes = 4 + 4 * static_cast<std::size_t>(dimensions);
  const std::uint32_t expected = kUnsignedBytes + static_cast<std::uint32_t>(dimensions);
  const std::uint32_t magic = read_number(reader, name, header_bytes);
  if (magic != expected) {
    raise<DataError>("{}: expected the magic number 0x{:08x} of IDX {}, found 0x{:08x}", name, expected,
                     dimensions == kLabelDimensions ? "labels" : "images", magic);
  }
  IdxArray array;
  array.items = read_number(reader, name, header_bytes);
  array.item_bytes = 1;
  if (array.items == 0) raise<DataError>("{}: expected items, the header says 0", name);
  std::size_t all_bytes = array.items;
  for (int dimension = 1; dimension < dimensions; ++dimension) {
    const std::size_t side = read_number(reader, name, header_bytes);
    if (side == 0) raise<DataError>("{}: expected images of at least 1x1 pixels, the header says a side of 0", name);
    if (__builtin_mul_overflow(all_bytes, side, &all_bytes)) {
      raise<DataError>("{}: the header promises more bytes than 64 bits can count", name);
    }
    array.sides.push_back(side);
    array.item_bytes *= side;
  }
  return array;
}

// Adds the item to what the reader has to say about gzip data.
std::size_t read_or_name_item(ContentReader& reader, std::span<std::uint8_t> out, const IdxArray& array) {
  const std::size_t header_bytes = 4 + 4 * (array.sides.size() + 1);
  try {
    return reader.read(out);
  } catch (const DataError& error) {
    raise<DataError>("{}; item {} is cut off", error.what(), (reader.position() - header_bytes) / array.item_bytes);
  }
}

void read_values(ContentReader& reader, const std::string& name, IdxArray& array) {
  constexpr std::size_t kFirstRead = std::size_t{64} << 10;
  const std::size_t promised = array.items * array.item_bytes;
  std::vector<std::uint8_t>& values = array.values;
  std::size_t have = 0;
  while (have < promised) {
    const std::size_t wanted = std::min(promised - have, std::max(kFirstRead, have));
    values.resize(have + wanted);
    const std::size_t got = read_or_name_item(reader, std::span(values).subspan(have), array);
    have += got;
    if (got < wanted) {
      raise<DataError>(
          "{}: the header promises {} items of {} bytes, {} in all, but {} bytes follow: item {} is cut off", name,
          array.items, array.item_bytes, promised, have, have / array.item_bytes);
    }
  }
  std::array<std::uint8_t, 1> beyond{};
  if (reader.read(beyond) > 0) {
    raise<DataError>("{}: expected the end of the file after {} items of {} bytes, found more bytes", name, array.items,
                     array.item_bytes);
  }
}

IdxArray load(const fs::path& path, int dimensions) { return parse_idx(read_content(path), path.string(), dimensions); }

class IdxDataset : public Dataset {
 public:
  IdxDataset(IdxArray images, IdxArray labels, int classes)
      : images_(std::move(images)), labels_(std::move(labels)), classes_(classes) {}

  std::size_t size() const override { return images_.items; }
  ImageShape shape() const override { return {.channels = 1, .height = images_.sides[0], .width = images_.sides[1]}; }
  int classes() const override { return classes_; }

  std::int64_t get(const Item& item, std::span<std::uint8_t> image) const override {
    std::ranges::copy_n(images_.values.begin() + static_cast<std::ptrdiff_t>(item.index * images_.item_bytes),
                        static_cast<std::ptrdiff_t>(images_.item_bytes), image.begin());
    return labels_.values[item.index];
  }

 private:
  const IdxArray images_;
  const IdxArray labels_;
  const int classes_;
};

struct LoadedSet {
  IdxArray images, labels;
};

LoadedSet load_set(const IdxFiles& files) {
  LoadedSet set{.images = load(files.images, kImageDimensions), .labels = load(files.labels, kLabelDimensions)};
  if (set.images.items != set.labels.items) {
    raise<DataError>("{} has {} images, but {} has {} labels; they do not belong together", files.images.string(),
                     set.images.items, files.labels.string(), set.labels.items);
  }
  if (files.classes == 0) return set;
  const std::vector<std::uint8_t>& labels = set.labels.values;
  const auto wrong = std::ranges::find_if(labels, [&](int label) { return label >= files.classes; });
  if (wrong != labels.end()) {
    raise<DataError>(
        "{}: item {} has the label {}, but labels are below the number of classes, {}; raise the number of classes or "
        "look at the file",
        files.labels.string(), wrong - labels.begin(), *wrong, files.classes);
  }
  return set;
}

int classes_of(const LoadedSet& set) { return std::ranges::max(set.labels.values) + 1; }

std::shared_ptr<const Dataset> dataset_of(LoadedSet set, int classes) {
  return std::make_shared<IdxDataset>(std::move(set.images), std::move(set.labels), classes);
}

struct FoundPair {
  fs::path images, labels;
};

// Nothing where neither file of the pair is there.
std::optional<FoundPair> find_pair(const fs::path& directory, const std::string& prefix) {
  const fs::path images = directory / (prefix + "-images-idx3-ubyte");
  const fs::path labels = directory / (prefix + "-labels-idx1-ubyte");
  FoundPair found{.images = plain_or_gzip(images), .labels = plain_or_gzip(labels)};
  if (found.images.empty() && found.labels.empty()) return std::nullopt;
  if (found.images.empty() || found.labels.empty()) {
    raise<DataError>("{}: found {}, but there is neither {} nor the same with .gz", directory.string(),
                     (found.images.empty() ? found.labels : found.images).filename().string(),
                     (found.images.empty() ? images : labels).filename().string());
  }
  return found;
}

}  // namespace

IdxArray parse_idx(std::span<const std::uint8_t> content, const std::string& name, int dimensions) {
  ContentReader reader(content, name);
  IdxArray array = read_header(reader, name, dimensions);
  read_values(reader, name, array);
  return array;
}

std::shared_ptr<const Dataset> open_idx(const IdxFiles& files) {
  LoadedSet set = load_set(files);
  const int classes = files.classes != 0 ? files.classes : classes_of(set);
  return dataset_of(std::move(set), classes);
}

fs::path plain_or_gzip(const fs::path& path) {
  std::error_code ignored;  // what cannot be looked at is not there
  if (fs::exists(path, ignored)) return path;
  fs::path compressed = path;
  compressed += ".gz";
  return fs::exists(compressed, ignored) ? compressed : fs::path();
}

bool is_idx_directory(const fs::path& directory) {
  return !plain_or_gzip(directory / "train-images-idx3-ubyte").empty();
}

DatasetPair open_idx_directory(const fs::path& directory, int classes) {
  const auto load_found = [&](const FoundPair& found) {
    return load_set({.images = found.images, .labels = found.labels, .classes = classes});
  };
  const std::optional<FoundPair> train = find_pair(directory, "train");
  if (!train) {
    raise<DataError>(
        "{}: expected train-images-idx3-ubyte and train-labels-idx1-ubyte, plain or with .gz; found neither",
        directory.string());
  }
  LoadedSet train_set = load_found(*train);
  std::optional<LoadedSet> test_set;
  if (const std::optional<FoundPair> test = find_pair(directory, "t10k")) test_set = load_found(*test);
  if (classes == 0) classes = std::max(classes_of(train_set), test_set ? classes_of(*test_set) : 0);
  return {.train = dataset_of(std::move(train_set), classes),
          .test = test_set ? dataset_of(std::move(*test_set), classes) : nullptr};
}

}  // namespace sumpter
