// Lossy wires: what arrives of gradients and of parameters, what is owed, what is counted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/kernels.h"
#include "spec/plan.h"
#include "steps.h"

namespace sumpter::tests {
namespace {

constexpr float kStep = 0x1p-7F;  // bf16 holds 1, 1 + kStep, 1 + 2*kStep, ...; a half goes to the even one

// Each step takes the whole mean from the parameters: they are minus the sum of what arrived.
Case adding_up(Update update, WireFormat wire, bool error_feedback) {
  Case run;
  run.options.update = update;
  run.options.gradient_wire = wire;
  run.options.error_feedback = error_feedback;
  run.options.optimizer = {.learning_rate = 1, .momentum = 0};
  return run;
}

Values<float> all_equal(float value) {
  Values<float> values = zeros<float>();
  for (std::vector<float>& one : values) std::fill(one.begin(), one.end(), value);
  return values;
}

void expect_state(const State<float>& state, const std::string& kind, float value) {
  for (const ParameterInfo& parameter : kParameters) {
    EXPECT_EQ(state.at(kind + "." + parameter.name), std::vector<float>(parameter.count, value))
        << kind << " of " << parameter.name;
  }
}

TEST(GradientWire, RoundsWhatEachReplicaSends) {
  for (const Update update : {Update::device, Update::host}) {
    for (const char* chunk : {"1layer", "all"}) {
      Case run = adding_up(update, WireFormat::bf16, false);
      run.options.chunk = parse_chunk_rule(chunk, "chunk");
      run.steps = 1;
      // Three quarters of a step go up, a quarter goes down: the mean is of 1 and 3 with two steps each, which bf16
      // holds.
      run.gradient = [](int rank, int, int, std::size_t) {
        return rank == 0 ? 1 + 1.75 * kStep : 3 + 2 * kStep + 0.25 * kStep;
      };
      expect_parameters(execute(run), all_equal(-(2 + 2 * kStep)));
    }
  }
}

TEST(GradientWire, WhatWasLostFollows) {
  for (const Update update : {Update::device, Update::host}) {
    Case run = adding_up(update, WireFormat::bf16, true);
    run.steps = 1;
    run.gradient = [](int, int step, int, std::size_t) { return step == 0 ? 1 + kStep / 4 : 0; };
    const Result<float> first = execute(run);
    expect_parameters(first, all_equal(-1));
    expect_state(first.saved.state[1], "feedback.up", kStep / 4);
    run.steps = 2;
    const Result<float> second = execute(run);
    expect_parameters(second, all_equal(-1 - kStep / 4));
    expect_state(second.saved.state[1], "feedback.up", 0);

    run.options.error_feedback = false;
    expect_parameters(execute(run), all_equal(-1));
  }
}

// Both replicas send what bf16 holds, but it does not hold the mean.
TEST(GradientWire, TheMeanIsRoundedWhereItReturns) {
  Case run = adding_up(Update::device, WireFormat::bf16, true);
  run.gradient = [](int rank, int step, int, std::size_t) {
    if (step > 0) return 0.0F;
    return rank == 0 ? 1 : 1 + kStep;
  };
  run.steps = 1;
  const Result<float> first = execute(run);
  expect_parameters(first, all_equal(-1));
  for (const State<float>& state : first.saved.state) expect_state(state, "feedback.down", kStep / 2);
  run.steps = 2;
  expect_parameters(execute(run), all_equal(-1 - kStep / 2));
  run.options.error_feedback = false;
  expect_parameters(execute(run), all_equal(-1));

  run = adding_up(Update::host, WireFormat::bf16, false);
  run.gradient = [](int rank, int, int, std::size_t) { return rank == 0 ? 1 : 1 + kStep; };
  run.steps = 1;
  expect_parameters(execute(run), all_equal(-1 - kStep / 2));  // it does not return
}

// In two passes the same travels.
TEST(GradientWire, IsTheSameWithAndWithoutClipping) {
  for (const WireFormat wire : {WireFormat::bf16, WireFormat::f16, WireFormat::i8}) {
    for (const Update update : {Update::device, Update::host}) {
      Case run = adding_up(update, wire, true);
      run.replicas = 3;
      run.rows = rows_by_rank({2, 0, 1});
      run.gradient = fractions;
      const Result<float> once = execute(run);
      run.options.optimizer.clip_norm = 1e30;
      run.options.chunk = {ChunkRule::Kind::layers, 1};
      expect_parameters(execute(run), once.parameters);
    }
  }
}

TEST(GradientWire, AReplicaWithoutRowsKeepsWhatItOwes) {
  for (const Update update : {Update::device, Update::host}) {
    Case run = adding_up(update, WireFormat::bf16, true);
    run.rows = [](int rank, int step) { return static_cast<std::uint64_t>(rank == 1 && step == 1 ? 0 : 1); };
    run.gradient = [](int rank, int step, int, std::size_t) { return rank == 1 && step == 0 ? 2 + kStep / 2 : 0; };
    run.steps = 2;
    const Result<float> second = execute(run);
    expect_parameters(second, all_equal(-1));
    expect_state(second.saved.state[1], "feedback.up", kStep / 2);
    run.steps = 3;
    const Result<float> third = execute(run);
    expect_parameters(third, all_equal(-1 - kStep / 4));
    expect_state(third.saved.state[1], "feedback.up", 0);
  }
}

// Whole numbers up to 127 times a power of two that changes from block to block: i8 holds them only where its blocks
// are those of 256, counted from each parameter's start.
TEST(GradientWire, I8HasBlocksThatBeginAnewAtEachParameter) {
  for (const char* chunk : {"1layer", "all"}) {
    for (const Update update : {Update::device, Update::host}) {
      Case run = adding_up(update, WireFormat::f32, false);
      run.options.chunk = parse_chunk_rule(chunk, "chunk");
      run.gradient = [](int, int, int p, std::size_t i) {
        const int whole = i % 256 == 0 ? 127 : static_cast<int>(i * 37 % 255) - 127;
        return std::ldexp(whole, -3 * ((p + static_cast<int>(i / 256)) % 4));
      };
      const Result<float> exact = execute(run);
      run.options.gradient_wire = WireFormat::i8;
      expect_parameters(execute(run), exact.parameters);
    }
  }
}

TEST(GradientWire, I8SendsWhatItOwes) {
  for (const Update update : {Update::device, Update::host}) {
    Case run = adding_up(update, WireFormat::i8, true);
    run.steps = 4;
    // The scale is 1. A quarter each step: 0, then a half goes to the even 0, then three quarters to 1, then 0.
    run.gradient = [](int, int, int, std::size_t i) { return i % 256 == 0 ? 127 : 0.25; };
    Values<float> want = all_equal(-1);
    for (std::vector<float>& one : want)
      for (std::size_t i = 0; i < one.size(); i += 256) one[i] = -4 * 127;
    expect_parameters(execute(run), want);
    run.options.error_feedback = false;
    for (std::vector<float>& one : want)
      for (std::size_t i = 0; i < one.size(); ++i) one[i] = i % 256 == 0 ? -4 * 127 : 0;
    const Result<float> lost = execute(run);
    EXPECT_EQ(lost.parameters, want);  // which of the zeros it is does not matter
  }
}

TEST(GradientWire, CountsWhatF16CannotHold) {
  for (const Update update : {Update::device, Update::host}) {
    Case run = adding_up(update, WireFormat::f16, false);
    run.steps = 2;
    run.gradient = [](int rank, int, int p, std::size_t i) { return rank == 1 && p == 2 && i < 3 ? 70000.0 : 1.0; };
    const Result<float> result = execute(run);
    EXPECT_EQ(result.overflows, (std::vector<std::uint64_t>{0, 6}));
    EXPECT_EQ(result.parameters[2][2], -std::numeric_limits<float>::infinity());
    EXPECT_EQ(result.parameters[2][3], -2);
  }
}

// f16 ends at 65504; below it, its numbers are 32 apart. The mean of the first step lies between the last two and goes
// to the lower; what that lost pushes the second step's over the end, on every replica, and rank 0 counts it.
TEST(GradientWire, CountsWhatTheMeanCannotHoldOnce) {
  Case run = adding_up(Update::device, WireFormat::f16, true);
  run.steps = 2;
  run.gradient = [](int rank, int step, int, std::size_t) { return rank == 0 || step == 1 ? 65504.0 : 65472.0; };
  const Result<float> result = execute(run);
  EXPECT_EQ(result.overflows, (std::vector<std::uint64_t>{1000 + 10 + 30000 + 7 + 5003, 0}));
  expect_parameters(result, all_equal(-std::numeric_limits<float>::infinity()));
}

// What replicas read of the true values, rounded a parameter at a time.
Values<float> as_they_arrive(WireFormat wire, Values<float> values) {
  for (std::vector<float>& one : values) kernels::round_trip(wire, one.data(), nullptr, one.size());
  return values;
}

TEST(ParameterWire, ReplicasSeeRoundedOnesAndTheTrueOnesAreKept) {
  for (int steps = 0; steps <= 2; ++steps) {
    Case run = adding_up(Update::host, WireFormat::f32, false);
    run.options.parameter_wire = WireFormat::bf16;
    run.steps = steps;
    run.initial = [](int, std::size_t) { return 1 + kStep / 4; };
    run.gradient = [](int, int, int, std::size_t) { return -kStep / 4; };
    const Result<float> result = execute(run);
    EXPECT_EQ(result.saved.parameters, all_equal(1 + static_cast<float>(1 + steps) * kStep / 4));
    EXPECT_EQ(result.parameters, all_equal(steps < 2 ? 1 : 1 + kStep));
  }
}

TEST(ParameterWire, TheTrueOnesAreThoseOfAnExactWire) {
  for (const OptimizerKind kind : {OptimizerKind::sgd, OptimizerKind::adamw}) {
    Case run;
    run.replicas = 3;
    run.rows = rows_by_rank({2, 0, 1});
    run.options.update = Update::host;
    run.options.optimizer = {.kind = kind, .learning_rate = 0.01, .weight_decay = 0.01};
    run.gradient = fractions;
    run.initial = [](int p, std::size_t i) { return fractions(15, 15, p, i); };
    const Values<float> exact = execute(run).parameters;
    for (const WireFormat wire : {WireFormat::bf16, WireFormat::f16, WireFormat::i8}) {
      for (const double clip_norm : {0.0, 1e30}) {
        for (const std::size_t piece : {std::size_t{64}, std::size_t{1} << 20}) {
          SCOPED_TRACE(fmt::format("{}, clip {}, piece {}", name_of(wire), clip_norm, piece));
          run.options.parameter_wire = wire;
          run.options.optimizer.clip_norm = clip_norm;
          run.piece = piece;
          const Result<float> result = execute(run);
          EXPECT_EQ(result.saved.parameters, exact);
          expect_parameters(result, as_they_arrive(wire, exact));
        }
      }
    }
  }
}

TEST(ParameterWire, RefreshShowsWhatWasWrittenFromOutside) {
  Values<float> seen = zeros<float>();
  StepContext context(kParameters, {.update = Update::host, .parameter_wire = WireFormat::bf16}, addresses(seen));
  for (std::size_t p = 0; p < kParameters.size(); ++p)
    std::fill_n(static_cast<float*>(context.parameter(p)), kParameters[p].count, 1 + 0.75F * kStep);
  EXPECT_EQ(seen, zeros<float>());
  context.refresh();
  EXPECT_EQ(seen, all_equal(1 + kStep));
}

}  // namespace
}  // namespace sumpter::tests
