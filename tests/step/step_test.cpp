// One step after another, whatever the plan: chunks, pieces, reducers, rows, faults.
#include "step/step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spec/plan.h"
#include "steps.h"

namespace sumpter::tests {
namespace {

using testing::HasSubstr;

// What the steps must give with SGD, computed one number at a time in the order that is promised.
Values<float> expected(const Case& run) {
  Values<float> parameters = zeros<float>();
  Values<float> momentum = zeros<float>();
  const OptimizerOptions& sgd = run.options.optimizer;
  const auto rate = static_cast<float>(sgd.learning_rate), decay = static_cast<float>(sgd.weight_decay),
             kept = static_cast<float>(sgd.momentum);
  for (int step = 0; step < run.steps; ++step) {
    for (int p = 0; p < static_cast<int>(kParameters.size()); ++p) {
      for (std::size_t i = 0; i < kParameters[p].count; ++i) {
        float sum = 0;
        for (int rank = 0; rank < run.replicas; ++rank) {
          const auto rows = static_cast<double>(run.rows(rank, step));
          const auto scale = static_cast<float>(rows / static_cast<double>(run.all_rows(step)));
          if (rows > 0) sum += scale * static_cast<float>(small_numbers(rank, step, p, i));
        }
        float& m = momentum[p][i];
        float& value = parameters[p][i];
        m = kept * m + (sum + decay * value);
        value -= rate * m;
      }
    }
  }
  return parameters;
}

Case usual(Update update = Update::device) {
  Case run;
  run.options.update = update;
  run.options.optimizer = {.learning_rate = 0.125, .momentum = 0.5, .weight_decay = 0.0625};
  return run;
}

TEST(Step, GivesTheSameBitsForEveryPlan) {
  for (const int replicas : {1, 2, 4}) {
    const Values<float> want = [&] {
      Case run = usual();
      run.replicas = replicas;
      return expected(run);
    }();
    for (const Update update : {Update::device, Update::host}) {
      for (const char* chunk : {"1layer", "2layers", "64KiB", "all"}) {
        for (const std::size_t piece : {std::size_t{64}, std::size_t{4096}, std::size_t{1} << 20}) {
          for (const int reducers : {0, 2}) {
            Case run = usual(update);
            run.replicas = replicas;
            run.options.chunk = parse_chunk_rule(chunk, "chunk");
            run.piece = piece;
            run.reducers = reducers;
            SCOPED_TRACE(fmt::format("{} replicas, update {}, chunk {}, piece {}, {} reducers", replicas,
                                     name_of(update), chunk, piece, reducers));
            expect_parameters(execute(run), want);
          }
        }
      }
    }
  }
}

TEST(Step, TheMeanIsOverRows) {
  for (const Update update : {Update::device, Update::host}) {
    Case run = usual(update);
    run.replicas = 4;
    run.rows = rows_by_rank({3, 2, 2, 1});
    expect_parameters(execute(run), expected(run));
  }
}

TEST(Step, AReplicaMayHaveNoRows) {
  for (const Update update : {Update::device, Update::host}) {
    Case run = usual(update);
    run.replicas = 4;
    run.rows = rows_by_rank({1, 1, 1, 0});
    expect_parameters(execute(run), expected(run));
  }
}

TEST(Step, OrdersOfBackwardMayDifferByReplica) {
  Case run = usual();
  run.replicas = 3;
  run.options.chunk = {ChunkRule::Kind::layers, 1};
  run.order = {{4, 3, 2, 1, 0}, {0, 1, 2, 3, 4}, {2, 4, 0, 3, 1}};
  const Result<float> result = execute(run);
  expect_parameters(result, expected(run));
  EXPECT_EQ(result.plan.size(), 3U);
}

TEST(Step, CountsChunks) {
  Case run = usual();
  run.options.chunk = {ChunkRule::Kind::layers, 1};
  EXPECT_EQ(execute(run).chunks, (std::vector<std::uint64_t>{9, 9}));
  run.options.chunk = {ChunkRule::Kind::all, 0};
  EXPECT_EQ(execute(run).chunks, (std::vector<std::uint64_t>{3, 3}));
}

TEST(Step, WithoutMomentumThereIsNoState) {
  for (const Update update : {Update::device, Update::host}) {
    Case run = usual(update);
    run.options.optimizer.momentum = 0;
    const Result<float> result = execute(run);
    expect_parameters(result, expected(run));
    EXPECT_TRUE(result.saved.shared.empty());
    EXPECT_TRUE(result.saved.state[0].empty());
  }
}

TEST(Step, AReplicaThatFailsIsNamedByTheOthers) {
  for (const double clip_norm : {0.0, 1.0}) {
    for (const Update update : {Update::device, Update::host}) {
      Case run = usual(update);
      run.replicas = 3;
      run.options.optimizer.clip_norm = clip_norm;
      const Result<float> result = execute<float>(run, nullptr, [](int rank, int step) {
        if (rank == 1 && step == 1) throw std::runtime_error("out of luck");
      });
      EXPECT_EQ(result.faults[1], "out of luck");
      EXPECT_THAT(result.faults[0], HasSubstr("rank 1"));
      EXPECT_THAT(result.faults[2], HasSubstr("rank 1"));
    }
  }
}

TEST(Step, AMissingGradientIsNamed) {
  for (const std::vector<int>& order : {std::vector<int>{4, 3, 1, 0}, std::vector<int>{4, 3, 2, 2, 1, 0}}) {
    Case run = usual();
    run.replicas = 1;
    run.order = {order};
    EXPECT_THAT(execute(run).faults[0], HasSubstr("b.weight"));
  }
}

}  // namespace
}  // namespace sumpter::tests
