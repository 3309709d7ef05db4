// What a step refuses before anything is begun.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "step/step.h"
#include "steps.h"

namespace sumpter::tests {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string refusal_of(const StepOptions& options, const std::vector<ParameterInfo>& parameters = kParameters) {
  Values<double> room = zeros<double>();
  try {
    const StepContext context(parameters, options,
                              options.update == Update::host ? addresses(room) : std::vector<void*>{});
  } catch (const RequestError& error) {
    return error.what();
  }
  return "";
}

TEST(StepRefuses, AddressesThatDoNotFit) {
  float value = 0;
  const std::vector<void*> one = {&value};
  EXPECT_THROW(StepContext(kParameters, {.update = Update::device}, one), RequestError);
  EXPECT_THROW(StepContext(kParameters, {.update = Update::host}, one), RequestError);
  EXPECT_THROW(StepContext({}, {}, {}), RequestError);

  Group group({.members = 1});
  Exchange exchange = group.join(0);
  StepContext device(kParameters, {}, {});
  EXPECT_THROW(ReplicaStep(device, exchange, one), RequestError);
  EXPECT_THROW(device.parameter(0), RequestError);
  Values<float> room = zeros<float>();
  StepContext host(kParameters, {.update = Update::host}, addresses(room));
  EXPECT_THROW(ReplicaStep(host, exchange, one), RequestError);
  EXPECT_EQ(host.parameter(4), room[4].data());
  EXPECT_THROW(host.parameter(5), RequestError);
}

TEST(StepRefuses, ShapesThatDoNotFit) {
  EXPECT_THAT(refusal_of({}, {{"a.weight", 12, 0, {3, 5}}}), HasSubstr("'a.weight'"));
  EXPECT_EQ(refusal_of({}, {{"a.weight", 15, 0, {3, 5}}, {"scale", 1, 1, {}}}), "");
}

TEST(StepRefuses, APlanForAnotherModel) {
  EXPECT_EQ(refusal_of({.chunk = {ChunkRule::Kind::layers, 3}}), "");
  EXPECT_EQ(refusal_of({.chunk = {ChunkRule::Kind::layers, 100}}),
            "plan does not fit the model: chunk 100layers, the model has 3; write all");
}

TEST(StepRefuses, OptionsThatDoNotFitTogether) {
  EXPECT_THAT(refusal_of({.type = ElementType::bf16}), HasSubstr("bf16"));
  EXPECT_EQ(refusal_of({.type = ElementType::f64}), "");
  EXPECT_THAT(refusal_of({.type = ElementType::f64, .gradient_wire = WireFormat::bf16}), StartsWith("gradient_wire"));
  EXPECT_THAT(refusal_of({.update = Update::host, .type = ElementType::f64, .parameter_wire = WireFormat::i8}),
              StartsWith("parameter_wire"));
  EXPECT_THAT(refusal_of({.parameter_wire = WireFormat::f16}), StartsWith("parameter_wire"));
  EXPECT_EQ(refusal_of({.update = Update::host, .parameter_wire = WireFormat::f16}), "");
  EXPECT_THAT(refusal_of({.error_feedback = true}), StartsWith("error_feedback"));
  EXPECT_EQ(refusal_of({.gradient_wire = WireFormat::i8, .error_feedback = true}), "");
  EXPECT_THAT(refusal_of({.optimizer = {.learning_rate = -1}}), StartsWith("learning_rate"));
  EXPECT_THAT(refusal_of({.schedule = {.kind = ScheduleKind::cosine}}), StartsWith("steps"));
}

}  // namespace
}  // namespace sumpter::tests
