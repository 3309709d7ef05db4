#include "step/step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <exception>
#include <functional>
#include <thread>

#include "base/error.h"

namespace sumpter {
namespace {

using testing::HasSubstr;

const std::vector<ParameterInfo> kParameters = {
    {"a.weight", 1000, 0}, {"a.bias", 10, 0}, {"b.weight", 30000, 1}, {"b.bias", 7, 1}, {"c.weight", 5003, 2}};

using Values = std::vector<std::vector<float>>;  // by parameter

Values zeros() {
  Values values;
  for (const ParameterInfo& parameter : kParameters) values.emplace_back(parameter.count, 0.0F);
  return values;
}

std::vector<float*> addresses(Values& values) {
  std::vector<float*> all;
  for (std::vector<float>& one : values) all.push_back(one.data());
  return all;
}

struct Case {
  int replicas = 2;
  StepOptions options;
  std::size_t piece = 4096;
  int reducers = 0;
  int steps = 3;
  std::vector<std::uint64_t> rows;                          // by rank; 1 each when empty
  std::vector<std::vector<int>> order = {{4, 3, 2, 1, 0}};  // by rank, the last one for all that follow
};

struct Result {
  Values parameters;                  // rank 0's, or the shared ones
  std::vector<std::string> faults;    // by rank, "" where there was none
  std::vector<std::uint64_t> chunks;  // by rank
  std::vector<Chunk> plan;
  std::vector<Values> all_parameters;  // by rank, update=device
};

// The gradient of element i of parameter p on a rank: small whole numbers, so that every sum is exact.
float gradient_of(int rank, int step, int parameter, std::size_t i) {
  return static_cast<float>((rank + 1) * (static_cast<int>(i) % 5 + parameter) + step);
}

using Meddle = std::function<void(int rank, int step)>;

void train(const Case& run, int rank, Exchange& exchange, ReplicaStep& step, Values& gradients, const Meddle& meddle) {
  const std::vector<int>& order = run.order[std::min<std::size_t>(rank, run.order.size() - 1)];
  for (int number = 0; number < run.steps; ++number) {
    for (int p = 0; p < static_cast<int>(kParameters.size()); ++p) step.wait_for_parameter(p);
    const std::uint64_t rows = run.rows.empty() ? 1 : run.rows[rank];
    step.begin_step(rows);
    if (rows > 0) {
      for (const int p : order) {
        for (std::size_t i = 0; i < gradients[p].size(); ++i) gradients[p][i] = gradient_of(rank, number, p, i);
        step.gradient_final(p, gradients[p].data());
      }
    }
    if (meddle) meddle(rank, number);
    step.backward_done();
  }
  step.finish();
  exchange.barrier();
}

Result execute(const Case& run, const Meddle& meddle = {}) {
  const bool host = run.options.update == Update::host;
  Result result;
  result.parameters = zeros();
  result.faults.resize(run.replicas);
  result.chunks.resize(run.replicas);
  result.all_parameters.resize(run.replicas);
  const std::vector<float*> shared = host ? addresses(result.parameters) : std::vector<float*>{};
  StepContext context(kParameters, run.options, shared);
  Group group(
      {.members = run.replicas, .piece = run.piece, .reducers = run.reducers, .time_limit = std::chrono::seconds(60)});
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < run.replicas; ++rank) {
      threads.emplace_back([&, rank] {
        try {
          Exchange exchange = group.join(rank);
          Values own = zeros();
          Values gradients = zeros();  // the others may read them until the step has ended or aborted
          {
            ReplicaStep step(context, exchange, host ? std::vector<float*>{} : addresses(own));
            train(run, rank, exchange, step, gradients, meddle);
            result.chunks[rank] = step.chunks_exchanged();
          }
          result.all_parameters[rank] = std::move(own);
        } catch (...) {
          result.faults[rank] = describe(std::current_exception());
        }
      });
    }
  }
  if (!host) result.parameters = result.all_parameters[0];
  result.plan = context.chunks();
  return result;
}

// What the steps must give, computed one number at a time in the order that is promised.
Values expected(const Case& run) {
  Values parameters = zeros();
  Values momentum = zeros();
  std::uint64_t all_rows = 0;
  for (int rank = 0; rank < run.replicas; ++rank) all_rows += run.rows.empty() ? 1 : run.rows[rank];
  const kernels::Sgd& sgd = run.options.optimizer;
  for (int step = 0; step < run.steps; ++step) {
    for (int p = 0; p < static_cast<int>(kParameters.size()); ++p) {
      for (std::size_t i = 0; i < kParameters[p].count; ++i) {
        float sum = 0;
        for (int rank = 0; rank < run.replicas; ++rank) {
          const std::uint64_t rows = run.rows.empty() ? 1 : run.rows[rank];
          const auto scale = static_cast<float>(static_cast<double>(rows) / static_cast<double>(all_rows));
          if (rows > 0) sum += scale * gradient_of(rank, step, p, i);
        }
        float& m = momentum[p][i];
        float& value = parameters[p][i];
        m = sgd.momentum * m + (sum + sgd.weight_decay * value);
        value -= sgd.learning_rate * m;
      }
    }
  }
  return parameters;
}

Case usual() {
  Case run;
  run.options.optimizer = {.learning_rate = 0.125F, .momentum = 0.5F, .weight_decay = 0.0625F};
  return run;
}

void expect_equal(const Result& result, const Case& run) {
  for (const std::string& fault : result.faults) ASSERT_EQ(fault, "");
  const Values want = expected(run);
  for (std::size_t p = 0; p < want.size(); ++p) ASSERT_EQ(result.parameters[p], want[p]) << kParameters[p].name;
  if (run.options.update == Update::host) return;
  for (int rank = 0; rank < run.replicas; ++rank) ASSERT_EQ(result.all_parameters[rank], want) << "rank " << rank;
}

TEST(Step, GivesTheSameBitsForEveryPlan) {
  for (const int replicas : {1, 2, 4}) {
    for (const Update update : {Update::device, Update::host}) {
      for (const char* chunk : {"1layer", "2layers", "64KiB", "all"}) {
        for (const std::size_t piece : {std::size_t{64}, std::size_t{4096}, std::size_t{1} << 20}) {
          for (const int reducers : {0, 2}) {
            Case run = usual();
            run.replicas = replicas;
            run.options.update = update;
            run.options.chunk = parse_chunk_rule(chunk, "chunk");
            run.piece = piece;
            run.reducers = reducers;
            SCOPED_TRACE(fmt::format("{} replicas, update {}, chunk {}, piece {}, {} reducers", replicas,
                                     name_of(update), chunk, piece, reducers));
            expect_equal(execute(run), run);
          }
        }
      }
    }
  }
}

TEST(Step, TheMeanIsOverRows) {
  for (const Update update : {Update::device, Update::host}) {
    Case run = usual();
    run.replicas = 4;
    run.options.update = update;
    run.rows = {3, 2, 2, 1};
    expect_equal(execute(run), run);
  }
}

TEST(Step, AReplicaMayHaveNoRows) {
  for (const Update update : {Update::device, Update::host}) {
    Case run = usual();
    run.replicas = 4;
    run.options.update = update;
    run.rows = {1, 1, 1, 0};
    expect_equal(execute(run), run);
  }
}

TEST(Step, OrdersOfBackwardMayDifferByReplica) {
  Case run = usual();
  run.replicas = 3;
  run.options.chunk = {ChunkRule::Kind::layers, 1};
  run.order = {{4, 3, 2, 1, 0}, {0, 1, 2, 3, 4}, {2, 4, 0, 3, 1}};
  const Result result = execute(run);
  expect_equal(result, run);
  EXPECT_EQ(result.plan.size(), 3U);
}

TEST(Step, CountsChunks) {
  Case run = usual();
  run.options.chunk = {ChunkRule::Kind::layers, 1};
  EXPECT_EQ(execute(run).chunks, (std::vector<std::uint64_t>{9, 9}));
  run.options.chunk = {ChunkRule::Kind::all, 0};
  EXPECT_EQ(execute(run).chunks, (std::vector<std::uint64_t>{3, 3}));
}

TEST(Step, WithoutMomentumThereIsNoBuffer) {
  for (const Update update : {Update::device, Update::host}) {
    Case run = usual();
    run.options.update = update;
    run.options.optimizer.momentum = 0;
    expect_equal(execute(run), run);
  }
}

TEST(Step, AReplicaThatFailsIsNamedByTheOthers) {
  for (const Update update : {Update::device, Update::host}) {
    Case run = usual();
    run.replicas = 3;
    run.options.update = update;
    const Result result = execute(run, [](int rank, int step) {
      if (rank == 1 && step == 1) throw std::runtime_error("out of luck");
    });
    EXPECT_EQ(result.faults[1], "out of luck");
    EXPECT_THAT(result.faults[0], HasSubstr("rank 1"));
    EXPECT_THAT(result.faults[2], HasSubstr("rank 1"));
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

TEST(Step, RefusesAddressesThatDoNotFit) {
  std::vector<float> room(10);
  const std::vector<float*> one = {room.data()};
  EXPECT_THROW(StepContext(kParameters, {.update = Update::device}, one), RequestError);
  EXPECT_THROW(StepContext(kParameters, {.update = Update::host}, one), RequestError);
  EXPECT_THROW(StepContext({}, {}, {}), RequestError);
}

}  // namespace
}  // namespace sumpter
