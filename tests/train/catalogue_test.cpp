#include "train/catalogue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sumpter/error.h"
#include "train/devices.h"

namespace sumpter {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string refusal_of(const std::string& model) {
  try {
    parse_model(model, "--model");
  } catch (const RequestError& error) {
    return error.what();
  }
  return "";
}

TEST(Catalogue, KnowsTheParametersOfItsModels) {
  EXPECT_EQ(parse_model("lenet", "m").parameters(), 431'080U);
  EXPECT_EQ(parse_model("mlp60m", "m").parameters(), 59'817'738U);
  EXPECT_EQ(parse_model("mlp:784-512-10", "m").parameters(), 784U * 512 + 512 + 512 * 10 + 10);
  for (const ModelInfo& model : built_in_models())
    EXPECT_EQ(parse_model(model.name, "m").parameters(), model.parameters) << model.name;
}

TEST(Catalogue, ReadsTheSizesOfAnMlp) {
  EXPECT_THAT(parse_model("mlp:3-1048576", "m").sizes, ElementsAre(3, 1 << 20));
  EXPECT_THAT(parse_model("mlp60m", "m").sizes, ElementsAre(3072, 4096, 4096, 4096, 3328, 10));
}

TEST(Catalogue, RefusesWhatItDoesNotHaveAndNamesTheOption) {
  EXPECT_THAT(refusal_of("alexnot"), HasSubstr("--model: there is no model 'alexnot'; there are lenet, mlp"));
  EXPECT_THAT(refusal_of(""), HasSubstr("there is no model ''"));
  EXPECT_THAT(refusal_of("mlp:784"), HasSubstr("has one width"));
  for (const char* sizes : {"mlp:", "mlp:784--10", "mlp:784-0", "mlp:784-1x", "mlp:784-10-", "mlp:-5-10",
                            "mlp:99999999999999999999-10", "mlp:1048577-10"})
    EXPECT_THAT(refusal_of(sizes), HasSubstr("is not a width from 1 to 1048576")) << sizes;
}

TEST(Catalogue, SyntheticImagesFitTheModel) {
  EXPECT_EQ(usual_shape(parse_model("lenet", "m")), (ImageShape{1, 28, 28}));
  EXPECT_EQ(usual_shape(parse_model("mlp60m", "m")), (ImageShape{3, 32, 32}));
  EXPECT_EQ(usual_shape(parse_model("mlp:17-2", "m")), (ImageShape{1, 1, 17}));
}

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
