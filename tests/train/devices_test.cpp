#include "train/devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sumpter/error.h"

namespace sumpter {
namespace {

using testing::HasSubstr;

TEST(Devices, AreCpuWithANumber) {
  EXPECT_EQ(parse_devices("cpu:1", "--devices"), 1);
  EXPECT_EQ(parse_devices("cpu:64", "--devices"), 64);
  for (const char* text : {"cuda:2", "cpu", "", "cpu:0", "cpu:-1", "cpu:65", "cpu:2x", "cpu:", "cpu:99999999999"}) {
    try {
      parse_devices(text, "--devices");
      ADD_FAILURE() << text;
    } catch (const RequestError& error) {
      EXPECT_THAT(error.what(), HasSubstr("--devices: '" + std::string(text) + "'"));
      EXPECT_THAT(error.what(), HasSubstr("64"));
    }
  }
}

}  // namespace
}  // namespace sumpter
