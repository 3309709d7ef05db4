// What must hold for any bytes given as an IDX file: they are an array whose parts agree, or a DataError. libFuzzer
// calls this function, and so does idx_mutation_test.cpp.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>

#include "input/idx.h"
#include "sumpter/error.h"

namespace {

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "idx_fuzz: %s\n", what);
  std::abort();
}

void check(std::span<const std::uint8_t> content, int dimensions) {
  try {
    const sumpter::IdxArray array = sumpter::parse_idx(content, "fuzzed", dimensions);
    require(array.items > 0, "an array without items");
    require(array.sides.size() + 1 == static_cast<std::size_t>(dimensions), "a wrong number of sides");
    std::size_t item_bytes = 1;
    for (const std::size_t side : array.sides) item_bytes *= side;
    require(array.item_bytes == item_bytes, "items of another size than their sides say");
    require(array.values.size() == array.items * item_bytes, "values that are no whole number of items");
  } catch (const sumpter::DataError& error) {
    require(std::string(error.what()).starts_with("fuzzed: "), "an error that does not name the file");
  }
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer chose the name
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  check({data, size}, 3);
  check({data, size}, 1);
  return 0;
}
