// All 2^32 float32 values through encode, on every instruction set.
#include "support.h"

namespace sumpter::kernels {
namespace {

TEST(ProveConvert, EncodesEveryFloat) {
  constexpr std::size_t kChunk = std::size_t{1} << 16;
  std::vector<float> values(kChunk);
  std::vector<std::uint16_t> expected(kChunk);
  std::vector<std::uint16_t> found(kChunk);
  for (const WireFormat format : {WireFormat::bf16, WireFormat::f16}) {
    for (std::uint64_t start = 0; start < std::uint64_t{1} << 32; start += kChunk) {
      for (std::size_t i = 0; i < kChunk; ++i) values[i] = std::bit_cast<float>(static_cast<std::uint32_t>(start + i));
      reference::encode(format, values.data(), expected.data(), kChunk);
      for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
        hwy::GetChosenTarget().Update(target);
        encode(format, values.data(), found.data(), kChunk);
        if (found == expected) continue;
        for (std::size_t i = 0; i < kChunk; ++i) {
          const bool both_nan = is_nan(format, found[i]) && is_nan(format, expected[i]);
          ASSERT_TRUE(found[i] == expected[i] || both_nan)
              << target_name() << " " << name_of(format) << " of bits " << start + i << " gives " << found[i]
              << " instead of " << expected[i];
        }
      }
    }
  }
  hwy::GetChosenTarget().DeInit();
}

}  // namespace
}  // namespace sumpter::kernels
