#include "train/catalogue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sumpter/error.h"

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
  EXPECT_THAT(refusal_of("alexnot"),
              HasSubstr("--model: there is no model 'alexnot'; there are lenet, mlp, mlp60m, alexnet, "));
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

TEST(Catalogue, VisionModelsFollowTheDataInTheirClasses) {
  const ModelSpec resnet = parse_model("resnet18", "m");
  EXPECT_EQ(resnet.classes(), 1000);
  EXPECT_EQ(resnet.with_classes(10).classes(), 10);
  EXPECT_EQ(resnet.parameters(), 11'689'512U);
  EXPECT_EQ(resnet.with_classes(10).parameters(), 11'689'512U - 990 * 513);
  EXPECT_EQ(parse_model("vgg16", "m").parameters(), 138'357'544U);
  EXPECT_EQ(parse_model("lenet", "m").with_classes(3).classes(), 10);
  EXPECT_EQ(parse_model("mlp:5-4", "m").with_classes(3).classes(), 4);
  EXPECT_EQ(parse_model("gpt", "m").with_classes(3).classes(), 256);
}

TEST(Catalogue, ReadsTheSizesOfAGpt) {
  EXPECT_THAT(parse_model("gpt", "m").sizes, ElementsAre(4, 128, 4, 128));
  EXPECT_THAT(parse_model("gpt:2-32-4-64", "m").sizes, ElementsAre(2, 32, 4, 64));
  EXPECT_EQ(needs_of(parse_model("gpt:2-32-4-64", "m")).context, 64U);
  EXPECT_EQ(needs_of(parse_model("gpt", "m")).kind, InputKind::bytes);
  EXPECT_THAT(refusal_of("gpt:2-32-4"), HasSubstr("gpt:2-32-4 has 3 numbers and needs 4"));
  EXPECT_THAT(refusal_of("gpt:2-32-5-64"), HasSubstr("a width of 32 cannot be shared by 5 heads"));
  EXPECT_THAT(refusal_of("gpt:2-x-5-64"), HasSubstr("'x' in gpt:2-x-5-64 is not a number from 1 to 1048576"));
}

TEST(Catalogue, FilesAreScripts) {
  for (const char* path : {"model.pt", "/a/b.ts", "mlp:3.pt"}) {
    const ModelSpec spec = parse_model(path, "m");
    EXPECT_EQ(spec.kind, ModelSpec::Kind::script) << path;
    EXPECT_EQ(spec.path, path);
    EXPECT_EQ(spec.name, path);
    EXPECT_EQ(spec.parameters(), 0U);
  }
}

std::string misfit_of(const char* model, const ImageShape& shape, int classes, int image_size = 0) {
  try {
    check_input(parse_model(model, "model"), shape, classes, image_size);
  } catch (const RequestError& error) {
    return error.what();
  }
  return "";
}

TEST(Catalogue, RefusesImagesThatDoNotFit) {
  EXPECT_EQ(misfit_of("lenet", {1, 28, 28}, 10), "");
  EXPECT_EQ(misfit_of("lenet", {1, 30, 40}, 10, 28), "");
  EXPECT_EQ(misfit_of("mlp", {1, 14, 56}, 2), "");
  EXPECT_EQ(misfit_of("resnet18", {1, 28, 28}, 10), "");
  EXPECT_EQ(misfit_of("alexnet", {1, 28, 28}, 10, 63), "");
  EXPECT_EQ(misfit_of("any.pt", {2, 7, 9}, 12345), "");
  EXPECT_THAT(misfit_of("lenet", {3, 32, 32}, 10), HasSubstr("takes images of 1x28x28 and the data has 3x32x32"));
  EXPECT_THAT(misfit_of("lenet", {3, 32, 32}, 10, 28), HasSubstr("the data has 3x32x32, resized to 28x28"));
  EXPECT_THAT(misfit_of("mlp60m", {1, 28, 28}, 10), HasSubstr("takes 3072 values per image and the data has 1x28x28"));
  EXPECT_THAT(misfit_of("lenet", {1, 28, 28}, 11), HasSubstr("tells 10 classes apart and the data has 11"));
  EXPECT_THAT(misfit_of("resnet18", {2, 28, 28}, 10), HasSubstr("takes images of 3 channels, or of 1"));
  EXPECT_THAT(misfit_of("vgg16", {3, 32, 31}, 10), HasSubstr("takes images of 32x32 or larger"));
  EXPECT_THAT(misfit_of("alexnet", {3, 224, 224}, 10, 62), HasSubstr("--image-size 63"));
}

TEST(Catalogue, RefusesTextThatDoesNotFit) {
  EXPECT_EQ(misfit_of("gpt", {1, 1, 129}, 256), "");
  EXPECT_EQ(misfit_of("gpt", {1, 1, 2}, 256), "");
  EXPECT_THAT(misfit_of("gpt", {1, 28, 28}, 10), HasSubstr("reads text and the data has images of 1x28x28"));
  EXPECT_THAT(misfit_of("gpt", {1, 1, 1}, 256), HasSubstr("reads text"));
  EXPECT_THAT(misfit_of("gpt", {1, 1, 129}, 256, 32), HasSubstr("leave out --image-size"));
  EXPECT_THAT(misfit_of("gpt:2-8-2-16", {1, 1, 33}, 256),
              HasSubstr("reads 16 bytes at a time and rows of the data have "
                        "32: choose a model with that context, as in "
                        "gpt:2-8-2-32"));
}

TEST(Catalogue, UsualShapesFitTheirModels) {
  for (const ModelInfo& info : built_in_models()) {
    const ModelSpec spec = parse_model(info.name, "m");
    EXPECT_NO_THROW(check_input(spec, usual_shape(spec), static_cast<int>(spec.classes()))) << info.name;
  }
}

}  // namespace
}  // namespace sumpter
