// Some thousand seeded damages of small valid files, each through the fuzzer's function.
#include <gtest/gtest.h>

#include <algorithm>

#include "idx_files.h"
#include "input/idx.h"
#include "input/random.h"
#include "sumpter/error.h"

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer chose the name
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace sumpter {
namespace {

Bytes mutated(Bytes bytes, Random& random) {
  for (std::uint64_t changes = 1 + random.below(3); changes > 0; --changes) {
    const std::size_t at = random.below(bytes.size());
    const auto here = bytes.begin() + static_cast<std::ptrdiff_t>(at);
    switch (random.below(5)) {
      case 0:
        *here ^= static_cast<std::uint8_t>(1U << random.below(8));
        break;
      case 1:
        *here = static_cast<std::uint8_t>(random.next());
        break;
      case 2:
        bytes.resize(at + 1);
        break;
      case 3:
        bytes.insert(here, static_cast<std::uint8_t>(random.next()));
        break;
      default:
        bytes[random.below(std::min<std::size_t>(bytes.size(), 18))] ^= 0xFF;
        break;  // the header
    }
  }
  return bytes;
}

bool is_valid(const Bytes& content, int dimensions) {
  try {
    parse_idx(content, "mutated", dimensions);
    return true;
  } catch (const DataError&) {
    return false;
  }
}

TEST(ParseIdx, SurvivesEveryMutation) {
  Random random(2026);
  const std::vector<Bytes> seeds = {idx_images(5, 3, 4), idx_labels(9), gzipped(idx_images(5, 3, 4)),
                                    gzipped(idx_labels(9)), gzipped(idx_images(40, 5, 5))};
  int valid = 0;
  int invalid = 0;
  for (int round = 0; round < 2000; ++round) {
    for (const Bytes& seed : seeds) {
      const Bytes content = mutated(seed, random);
      EXPECT_EQ(LLVMFuzzerTestOneInput(content.data(), content.size()), 0);
      ++(is_valid(content, 3) || is_valid(content, 1) ? valid : invalid);
    }
  }
  // Changes of a plain file's values leave it valid; most others do not: the mutations reach both sides.
  EXPECT_GT(valid, 500);
  EXPECT_GT(invalid, 5000);
}

}  // namespace
}  // namespace sumpter
