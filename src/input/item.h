// Reading one item of a data set, with errors that name it.
#pragma once

#include <cstdint>
#include <span>

#include "sumpter/input.h"

namespace sumpter {

// dataset.get(item, image). Throws DataError that begins with the item's number, with what the data set threw, or where
// the label is not one of its classes.
std::int64_t read_item(const Dataset& dataset, const Item& item, std::span<std::uint8_t> image);

}  // namespace sumpter
