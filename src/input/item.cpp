#include "input/item.h"

#include <exception>

#include "base/error.h"

namespace sumpter {

std::int64_t read_item(const Dataset& dataset, const Item& item, std::span<std::uint8_t> image) {
  std::int64_t label = 0;
  try {
    label = dataset.get(item, image);
  } catch (...) {
    raise<DataError>("item {} of the data set: {}", item.index, describe(std::current_exception()));
  }
  if (label < 0 || label >= dataset.classes()) {
    raise<DataError>("item {} of the data set: expected a label of 0 to {}, found {}", item.index,
                     dataset.classes() - 1, label);
  }
  return label;
}

}  // namespace sumpter
