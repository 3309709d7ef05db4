// What a checkpoint keeps, and that steps go on from it as if they had not been interrupted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "steps.h"

namespace sumpter::tests {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Case some(OptimizerKind kind, Update update) {
  Case run;
  run.replicas = 3;
  run.options.update = update;
  run.options.optimizer = {.kind = kind, .learning_rate = 0.01, .momentum = 0.9, .weight_decay = 0.01};
  run.options.schedule = {.kind = ScheduleKind::cosine, .warmup = 2, .steps = 6};
  run.gradient = fractions;
  run.initial = [](int p, std::size_t i) { return fractions(15, 15, p, i); };
  run.rows = [](int rank, int step) { return static_cast<std::uint64_t>(rank == 2 && step % 3 == 2 ? 0 : rank + 1); };
  run.steps = 6;
  return run;
}

template <typename T>
bool same_bits(const State<T>& a, const State<T>& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](const auto& x, const auto& y) {
           return x.first == y.first && x.second.size() == y.second.size() &&
                  std::memcmp(x.second.data(), y.second.data(), x.second.size() * sizeof(T)) == 0;
         });
}

// Six steps, and three that are saved and resumed for three more: in the same way, and with `resumed` where that
// differs.
template <typename T = float>
void expect_resumes(const Case& run, const Update resumed) {
  Case half = run;
  half.steps = 3;
  const Saved<T> saved = execute<T>(half).saved;
  half.first = 3;
  half.options.update = resumed;
  const Result<T> late = execute<T>(half, &saved);
  const Result<T> whole = execute<T>(run);
  expect_parameters(late, whole.parameters);
  if (run.options.update != resumed) return;
  EXPECT_TRUE(same_bits(late.saved.shared, whole.saved.shared));
  for (std::size_t rank = 0; rank < 3; ++rank)
    EXPECT_TRUE(same_bits(late.saved.state[rank], whole.saved.state[rank])) << "rank " << rank;
}

TEST(State, ResumesWithTheSameBits) {
  for (const OptimizerKind kind : {OptimizerKind::sgd, OptimizerKind::adam, OptimizerKind::adamw}) {
    for (const double clip_norm : {0.0, 1.0}) {
      for (const Update update : {Update::device, Update::host}) {
        SCOPED_TRACE(fmt::format("{}, clip {}, update {}", name_of(kind), clip_norm, name_of(update)));
        Case run = some(kind, update);
        run.options.optimizer.clip_norm = clip_norm;
        expect_resumes(run, Update::device);
        expect_resumes(run, Update::host);
        if (kind == OptimizerKind::sgd) continue;
        run.options.type = ElementType::f64;
        expect_resumes<double>(run, Update::device);
        expect_resumes<double>(run, Update::host);
      }
    }
  }
}

TEST(State, ResumesWithWhatRoundingStillOwes) {
  for (const WireFormat wire : {WireFormat::bf16, WireFormat::f16, WireFormat::i8}) {
    for (const Update update : {Update::device, Update::host}) {
      SCOPED_TRACE(fmt::format("{}, update {}", name_of(wire), name_of(update)));
      Case run = some(OptimizerKind::adam, update);
      run.options.gradient_wire = wire;
      run.options.error_feedback = true;
      expect_resumes(run, update);
      if (update == Update::device) continue;
      run.options.parameter_wire = wire;
      expect_resumes(run, update);
    }
  }
}

std::vector<std::string> kinds_of(const State<float>& state) {
  std::set<std::string> kinds;
  for (const auto& [name, values] : state) {
    for (const ParameterInfo& parameter : kParameters) {
      if (!name.ends_with("." + parameter.name)) continue;
      EXPECT_EQ(values.size(), parameter.count) << name;
      kinds.insert(name.substr(0, name.size() - parameter.name.size() - 1));
    }
  }
  EXPECT_EQ(state.size(), kinds.size() * kParameters.size());
  return {kinds.begin(), kinds.end()};
}

TEST(State, HasTheSameNamesOnDevicesAndHost) {
  Case run = some(OptimizerKind::adam, Update::device);
  run.options.gradient_wire = WireFormat::bf16;
  run.options.error_feedback = true;
  run.steps = 1;
  const Saved<float> device = execute(run).saved;
  EXPECT_THAT(device.shared, IsEmpty());
  EXPECT_THAT(kinds_of(device.state[1]),
              ElementsAre("feedback.down", "feedback.up", "optimizer.first", "optimizer.second"));
  run.options.update = Update::host;
  const Saved<float> host = execute(run).saved;
  EXPECT_THAT(kinds_of(host.shared), ElementsAre("optimizer.first", "optimizer.second"));
  EXPECT_THAT(kinds_of(host.state[1]), ElementsAre("feedback.up"));

  run.options.optimizer.kind = OptimizerKind::sgd;
  run.options.error_feedback = false;
  EXPECT_THAT(kinds_of(execute(run).saved.shared), ElementsAre("optimizer.first"));
}

TEST(State, HasTheParametersShapesAndStaysWhereItIs) {
  Values<float> room = zeros<float>();
  StepContext context(kParameters, {.update = Update::host}, addresses(room));
  const std::vector<StateArray> once = context.state(), again = context.state();
  ASSERT_EQ(once.size(), kParameters.size());
  for (std::size_t p = 0; p < once.size(); ++p) {
    EXPECT_EQ(once[p].name, "optimizer.first." + kParameters[p].name);
    EXPECT_EQ(once[p].shape, kParameters[p].shape);
    EXPECT_EQ(once[p].type, ElementType::f32);
    EXPECT_EQ(once[p].data, again[p].data);
  }
}

}  // namespace
}  // namespace sumpter::tests
