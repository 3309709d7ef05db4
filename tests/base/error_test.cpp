#include "base/error.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <exception>

namespace sumpter {
namespace {

TEST(Raise, FormatsTheMessage) {
  try {
    raise<DataError>("{}: item {}", "train.idx", 100);
    FAIL() << "raise returned";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "train.idx: item 100");
  }
}

TEST(Describe, TellsAnyException) {
  EXPECT_EQ(describe(std::make_exception_ptr(RequestError("no"))), "no");
  EXPECT_EQ(describe(std::make_exception_ptr(3)), "an exception that is not a std::exception");
  EXPECT_EQ(describe(nullptr), "no error");
}

TEST(ErrnoText, NamesTheError) { EXPECT_EQ(errno_text(ENOENT), "No such file or directory"); }

}  // namespace
}  // namespace sumpter
