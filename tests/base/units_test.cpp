#include "base/units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sumpter/error.h"

namespace sumpter {
namespace {

TEST(ParseBytes, ReadsWhatPeopleWrite) {
  EXPECT_EQ(parse_bytes("0", "size"), 0U);
  EXPECT_EQ(parse_bytes("4096", "size"), 4096U);
  EXPECT_EQ(parse_bytes("64KiB", "size"), 65536U);
  EXPECT_EQ(parse_bytes("1.5 MiB", "size"), 1572864U);
  EXPECT_EQ(parse_bytes("2gib", "size"), 2147483648U);
  EXPECT_EQ(parse_bytes("10MB", "size"), 10000000U);
  EXPECT_EQ(parse_bytes("7b", "size"), 7U);
}

TEST(ParseBytes, RefusesTheRestAndNamesTheOption) {
  for (const char* wrong :
       {"", "KiB", "-1", "1.5", "0.3KiB", "12 parsecs", "1e400", "nan", "inf", "9999999999GiB", "1MiB2"}) {
    try {
      parse_bytes(wrong, "--piece");
      ADD_FAILURE() << "accepted '" << wrong << "'";
    } catch (const RequestError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("--piece"));
    }
  }
}

TEST(FormatBytes, RoundTripsThroughParse) {
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{1}, std::size_t{1000}, 4 * kKiB, 3 * kMiB, kMiB + 1, 5 * kGiB}) {
    EXPECT_EQ(parse_bytes(format_bytes(bytes), "size"), bytes);
  }
  EXPECT_EQ(format_bytes(65536), "64KiB");
}

TEST(Describe, GivesThreeDigits) {
  EXPECT_EQ(describe_bytes(812), "812 B");
  EXPECT_EQ(describe_bytes(1536.0 * 1024), "1.50 MiB");
  EXPECT_EQ(describe_seconds(1.234e-3), "1.23 ms");
  EXPECT_EQ(describe_seconds(9.999e-3), "10.0 ms");
  EXPECT_EQ(describe_seconds(250), "4 min 10 s");
  EXPECT_EQ(describe_seconds(7260), "2 h 1 min");
}

}  // namespace
}  // namespace sumpter
