#include "spec/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "sumpter/error.h"

namespace sumpter {
namespace {

using testing::HasSubstr;

// The text with one piece of it replaced, which must be there.
std::string with(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

void expect_refused(const std::string& text, const std::string& naming) {
  try {
    plan_from_json(text, "plan.json");
    ADD_FAILURE() << "accepted: " << text;
  } catch (const RequestError& error) {
    EXPECT_THAT(error.what(), HasSubstr(naming));
    EXPECT_THAT(error.what(), HasSubstr("plan.json"));
  }
}

TEST(Plan, RoundTripsThroughJson) {
  Plan plan;
  plan.replicas = 4;
  plan.chunk = {ChunkRule::Kind::layers, 2};
  plan.piece = 4096;
  plan.gradient_wire = WireFormat::bf16;
  plan.parameter_wire = WireFormat::i8;
  plan.error_feedback = true;
  plan.update = Update::host;
  plan.preload = 0;
  plan.reducers = 3;
  plan.accumulate = 5;
  plan.clip = true;
  EXPECT_EQ(plan_from_json(to_json(plan), "plan.json"), plan);
  EXPECT_EQ(plan_from_json(to_json(Plan{}), "plan.json"), Plan{});
}

// The file that other programs write and read.
TEST(Plan, IsThisJson) {
  EXPECT_EQ(to_json(Plan{}), R"({
  "format": 1,
  "replicas": 1,
  "route": "host",
  "chunk": "1MiB",
  "piece": "128KiB",
  "gradient_wire": "f32",
  "parameter_wire": "f32",
  "error_feedback": false,
  "update": "device",
  "preload": 2,
  "reducers": 0,
  "accumulate": 1,
  "clip": false
}
)");
}

TEST(Plan, RefusesWhatIsWrongAndNamesTheKey) {
  const std::string good = to_json(Plan{});
  expect_refused("", "empty");
  expect_refused(good.substr(0, good.size() / 2), "not JSON");
  expect_refused("[1]", "array");
  expect_refused(with(good, "\"format\": 1", "\"format\": 2"), "'format'");
  expect_refused(with(good, "\"replicas\": 1", "\"replicas\": 0"), "'replicas'");
  expect_refused(with(good, "\"replicas\": 1", "\"replicas\": \"two\""), "'replicas'");
  expect_refused(with(good, "\"replicas\": 1", "\"replicas\": 18446744073709551615"), "'replicas'");
  expect_refused(with(good, "\"replicas\": 1", "\"replicas\": 1.5"), "'replicas'");
  expect_refused(with(good, "\"replicas\": 1,", ""), "'replicas' is missing");
  expect_refused(with(good, "\"replicas\": 1", "\"replicas\": 1e400"), "1e400");
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  expect_refused(with(good, "\"replicas\": 1", "\"replicas\": " + deep), "'replicas'");
  expect_refused(with(good, "\"reducers\": 0", "\"reducers\": 65"), "'reducers'");
  expect_refused(with(good, "\"host\"", "\"boat\""), "'route'");
  expect_refused(with(good, "\"1MiB\"", "\"0layers\""), "'chunk'");
  expect_refused(with(good, "\"128KiB\"", "\"100B\""), "piece");
  expect_refused(with(good, "\"128KiB\"", "true"), "'piece'");
  expect_refused(with(good, "\"preload\"", "\"pre-load\""), "preload");
  expect_refused(with(good, "\"format\"", "\"colour\": 1, \"format\""), "'colour' is unknown");
  expect_refused(with(good, "\"accumulate\": 1", "\"accumulate\": 0"), "'accumulate'");
  expect_refused(with(good, "\"accumulate\": 1", "\"accumulate\": 1025"), "'accumulate'");
  expect_refused(with(good, "\"error_feedback\": false", "\"error_feedback\": 0"), "'error_feedback'");
  expect_refused(with(good, "\"error_feedback\": false,", ""), "'error_feedback' is missing");
  expect_refused(with(good, "\"clip\": false", "\"clip\": \"no\""), "'clip'");
  expect_refused(with(good, "\"clip\": false", "\"clip\": " + deep), "'clip'");
  expect_refused(with(good, "\"gradient_wire\": \"f32\"", "\"gradient_wire\": \"f8\""), "'gradient_wire'");
  expect_refused(with(good, "\"parameter_wire\": \"f32\"", "\"parameter_wire\": \"i8\""), "parameter_wire");
  expect_refused(with(good, "\"error_feedback\": false", "\"error_feedback\": true"), "error_feedback");
}

TEST(Plan, KnowsWhichDecisionsFitTogether) {
  Plan plan{.parameter_wire = WireFormat::bf16, .update = Update::host};
  EXPECT_NO_THROW(validate(plan));
  plan.update = Update::device;
  EXPECT_THROW(validate(plan), RequestError);

  plan = {.gradient_wire = WireFormat::i8, .error_feedback = true};
  EXPECT_NO_THROW(validate(plan));
  plan.gradient_wire = WireFormat::f32;
  EXPECT_THROW(validate(plan), RequestError);

  EXPECT_NO_THROW(validate({.accumulate = kMaxAccumulate}));
  EXPECT_THROW(validate({.accumulate = kMaxAccumulate + 1}), RequestError);
}

TEST(WireFormat, IsReadByItsName) {
  for (const WireFormat format : {WireFormat::f32, WireFormat::bf16, WireFormat::f16, WireFormat::i8})
    EXPECT_EQ(parse_wire_format(name_of(format), "--gradient-wire"), format);
  EXPECT_THROW(parse_wire_format("int8", "--gradient-wire"), RequestError);
}

TEST(ChunkRule, ReadsSizesLayersAndAll) {
  EXPECT_EQ(parse_chunk_rule("64KiB", "--chunk"), (ChunkRule{ChunkRule::Kind::bytes, 65536}));
  EXPECT_EQ(parse_chunk_rule("2layers", "--chunk"), (ChunkRule{ChunkRule::Kind::layers, 2}));
  EXPECT_EQ(parse_chunk_rule("1layer", "--chunk"), (ChunkRule{ChunkRule::Kind::layers, 1}));
  EXPECT_EQ(parse_chunk_rule("all", "--chunk"), (ChunkRule{ChunkRule::Kind::all, 0}));
  for (const char* text : {"64KiB", "2layers", "all"}) EXPECT_EQ(to_string(parse_chunk_rule(text, "--chunk")), text);
  for (const char* wrong : {"", "0", "layers", "-2layers", "2.5layers", "some", "2layersx"})
    EXPECT_THROW(parse_chunk_rule(wrong, "--chunk"), RequestError) << wrong;
}

}  // namespace
}  // namespace sumpter
