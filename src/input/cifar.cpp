#include "input/cifar.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "input/content.h"

namespace sumpter {
namespace {

namespace fs = std::filesystem;

constexpr int kCoarseClasses = 20;

constexpr int classes_of(CifarKind kind) { return kind == CifarKind::cifar10 ? 10 : 100; }

constexpr const char* first_file_of(CifarKind kind) {
  return kind == CifarKind::cifar10 ? "data_batch_1.bin" : "train.bin";
}

// Rows as they are in the files.
class Cifar : public Dataset {
 public:
  Cifar(std::vector<std::uint8_t> rows, CifarKind kind) : rows_(std::move(rows)), kind_(kind) {}

  std::size_t size() const override { return rows_.size() / cifar_row_bytes(kind_); }
  ImageShape shape() const override { return {.channels = 3, .height = 32, .width = 32}; }
  int classes() const override { return classes_of(kind_); }

  std::int64_t get(const Item& item, std::span<std::uint8_t> image) const override {
    const std::size_t row_bytes = cifar_row_bytes(kind_);
    const std::span<const std::uint8_t> row = std::span(rows_).subspan(item.index * row_bytes, row_bytes);
    const std::size_t image_at = row_bytes - kCifarImageBytes;
    std::memcpy(image.data(), row.data() + image_at, kCifarImageBytes);
    return row[image_at - 1];  // the fine label, or the only one
  }

 private:
  const std::vector<std::uint8_t> rows_;
  const CifarKind kind_;
};

void check_label(const std::string& name, std::size_t item, const char* what, int label, int classes) {
  if (label < classes) return;
  raise<DataError>("{}: item {}: expected a {} of 0 to {}, found {}", name, item, what, classes - 1, label);
}

std::shared_ptr<const Dataset> load(const fs::path& directory, const std::vector<std::string>& files, CifarKind kind) {
  std::vector<std::uint8_t> rows;
  for (const std::string& file : files) {
    const std::vector<std::uint8_t> content = read_content(directory / file);
    check_cifar(content, (directory / file).string(), kind);
    rows.insert(rows.end(), content.begin(), content.end());
  }
  return std::make_shared<Cifar>(std::move(rows), kind);
}

}  // namespace

std::size_t check_cifar(std::span<const std::uint8_t> content, const std::string& name, CifarKind kind) {
  const std::size_t row_bytes = cifar_row_bytes(kind);
  const std::size_t rows = content.size() / row_bytes;
  if (content.size() % row_bytes != 0) {
    raise<DataError>("{}: expected rows of {} bytes, found {} bytes: item {} is cut off; copy or download it again",
                     name, row_bytes, content.size(), rows);
  }
  if (rows == 0) raise<DataError>("{}: expected rows of {} bytes, found an empty file", name, row_bytes);
  for (std::size_t item = 0; item < rows; ++item) {
    const std::span<const std::uint8_t> row = content.subspan(item * row_bytes, row_bytes);
    if (kind == CifarKind::cifar10) {
      check_label(name, item, "label", row[0], classes_of(kind));
    } else {
      check_label(name, item, "coarse label", row[0], kCoarseClasses);
      check_label(name, item, "fine label", row[1], classes_of(kind));
    }
  }
  return rows;
}

std::optional<CifarDirectory> find_cifar(const fs::path& directory) {
  std::error_code ignored;  // what cannot be looked at is not there
  for (const CifarDirectory& candidate :
       {CifarDirectory{.path = directory, .kind = CifarKind::cifar10},
        CifarDirectory{.path = directory, .kind = CifarKind::cifar100},
        CifarDirectory{.path = directory / "cifar-10-batches-bin", .kind = CifarKind::cifar10},
        CifarDirectory{.path = directory / "cifar-100-binary", .kind = CifarKind::cifar100}}) {
    if (fs::exists(candidate.path / first_file_of(candidate.kind), ignored)) return candidate;
  }
  return std::nullopt;
}

DatasetPair open_cifar(const CifarDirectory& directory) {
  const bool ten = directory.kind == CifarKind::cifar10;
  const std::vector<std::string> train =
      ten ? std::vector<std::string>{"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
                                     "data_batch_5.bin"}
          : std::vector<std::string>{first_file_of(directory.kind)};
  std::error_code ignored;  // what cannot be looked at is not there
  for (const std::string& file : train) {
    if (fs::exists(directory.path / file, ignored)) continue;
    raise<DataError>("{}: found no {}, but {} needs all of {}; copy or unpack it again", directory.path.string(), file,
                     ten ? "CIFAR-10" : "CIFAR-100", fmt::join(train, ", "));
  }
  const std::string test = ten ? "test_batch.bin" : "test.bin";
  const bool has_test = fs::exists(directory.path / test, ignored);
  return {.train = load(directory.path, train, directory.kind),
          .test = has_test ? load(directory.path, {test}, directory.kind) : nullptr};
}

}  // namespace sumpter
