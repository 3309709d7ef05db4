// Which runs may go on from a checkpoint, and what they get from it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sumpter/error.h"
#include "tests/support/temporary_directory.h"
#include "tests/train/arrays.h"
#include "train/checkpoint.h"

namespace sumpter {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;
using tests::Arrays;
using tests::message_of;
using Json = nlohmann::ordered_json;

std::string difference(const char* saved, const char* now) {
  return message_of<RequestError>([&] { require_same(Json::parse(saved), Json::parse(now), "DIR/step-000000007"); });
}

TEST(RequireSame, EqualFactsPassInAnyOrderAndNumberType) {
  EXPECT_EQ(difference("{}", "{}"), "");
  EXPECT_EQ(difference(R"({"a": {"x": 1, "y": [1, "2", null]}, "b": 0.1})",
                       R"({"b": 0.1, "a": {"y": [1, "2", null], "x": 1.0}})"),
            "");
  const Json now = {{"count", 3}, {"rate", 0.1}, {"sizes", std::vector<int>{784, 10}}};
  EXPECT_NO_THROW(require_same(Json::parse(now.dump()), now, "DIR"));
}

TEST(RequireSame, FirstDifferenceIsNamed) {
  const char* saved = R"({"model": {"name": "lenet"}, "optimizer": {"momentum": 0.9, "nesterov": false}, "seed": 1})";
  EXPECT_EQ(
      difference(saved, R"({"model": {"name": "lenet"}, "optimizer": {"momentum": 0.8, "nesterov": true}, "seed": 2})"),
      "optimizer.momentum is 0.9 in DIR/step-000000007 and 0.8 in this run; set this run up as the checkpoint says, "
      "or begin a new one with --init DIR/step-000000007/weights.safetensors for the weights alone");
  EXPECT_THAT(difference(saved, R"({"model": {"name": "lenet"}, "optimizer": {"momentum": 0.9}, "seed": 1})"),
              StartsWith("optimizer.nesterov is false in DIR/step-000000007, and this run has no such key; set"));
  EXPECT_THAT(difference(R"({"a": {}})", R"({"a": {"b": "c"}})"),
              StartsWith("a.b is \"c\" in this run, and DIR/step-000000007 has no such key; set"));
  EXPECT_THAT(difference(R"({"a": {"b": 1}})", R"({"a": 1})"),
              StartsWith("a is {\"b\":1} in DIR/step-000000007 and 1 in"));
  EXPECT_THAT(difference(R"({"a": [1, 2]})", R"({"a": [1, 2, 3]})"), StartsWith("a is [1,2] in"));
  EXPECT_THAT(difference(R"({"a": 1})", R"({"a": "1"})"), StartsWith("a is 1 in DIR/step-000000007 and \"1\" in"));
  EXPECT_THAT(difference(R"({"a": null})", "{}"), StartsWith("a is null in"));
}

class Restore : public testing::Test {
 protected:
  Restore() {
    Arrays arrays;
    arrays.add<float>("w", ElementType::f32, {2, 1}, {1, 2})
        .add<double>("m.w", ElementType::f64, {}, {3})
        .add<float>("none", ElementType::f32, {0}, {});
    write_safetensors(arrays.views(), directory_.path() / "f");
  }
  std::string refusal() const {
    const SafetensorsFile file = SafetensorsFile::read(directory_.path() / "f");
    return message_of<RequestError>([&] { restore(file, targets_, "DIR"); });
  }

  const tests::TemporaryDirectory directory_;
  std::vector<float> w_ = {-1, -1};
  std::vector<double> m_ = {-1};
  // In an order of their own.
  std::vector<TargetArray> targets_ = {{"none", ElementType::f32, {0}, {}},
                                       {"m.w", ElementType::f64, {}, std::as_writable_bytes(std::span(m_))},
                                       {"w", ElementType::f32, {2, 1}, std::as_writable_bytes(std::span(w_))}};
};

TEST_F(Restore, FillsWhatHasTheSameNames) {
  EXPECT_EQ(refusal(), "");
  EXPECT_EQ(w_, (std::vector<float>{1, 2}));
  EXPECT_EQ(m_, (std::vector<double>{3}));
}

TEST_F(Restore, LeavesSurplusAloneWhereItIsAllowed) {
  targets_.pop_back();
  restore(SafetensorsFile::read(directory_.path() / "f"), targets_, "DIR", Surplus::allowed);
  EXPECT_EQ(w_, (std::vector<float>{-1, -1}));
  EXPECT_EQ(m_, (std::vector<double>{3}));
}

TEST_F(Restore, WidensFloat32) {
  std::vector<double> wide = {-1, -1};
  targets_.back() = {"w", ElementType::f64, {2, 1}, std::as_writable_bytes(std::span(wide))};
  EXPECT_EQ(refusal(), "");
  EXPECT_EQ(wide, (std::vector<double>{1, 2}));
}

TEST_F(Restore, RefusesWhatDiffersAndWritesNothing) {
  const std::vector<TargetArray> right = targets_;
  targets_[2].shape = {1, 2};
  EXPECT_THAT(refusal(), HasSubstr("DIR: the array \"w\" is f32 of shape [2, 1], and f32 of shape [1, 2] in this run"));
  targets_ = right;
  targets_[2].type = ElementType::i32;
  EXPECT_THAT(refusal(), HasSubstr("\"w\" is f32 of shape [2, 1], and i32 of shape [2, 1] in this run"));
  targets_ = right;
  targets_[2].name = "v";
  EXPECT_THAT(refusal(), HasSubstr("DIR: has no array \"v\", which this run has"));
  targets_ = right;
  targets_.pop_back();
  EXPECT_THAT(refusal(), HasSubstr("DIR: has the array \"w\", which this run has not"));
  targets_ = right;
  targets_[2].bytes = targets_[2].bytes.first(4);
  EXPECT_THAT(refusal(), HasSubstr("\"w\" is f32 of shape [2, 1], which is 8 bytes, but has room for 4"));
  EXPECT_EQ(w_, (std::vector<float>{-1, -1}));
  EXPECT_EQ(m_, (std::vector<double>{-1}));
}

}  // namespace
}  // namespace sumpter
