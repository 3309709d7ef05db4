// Every optimizer, on every replica and on the host: the same bits; and against plain loops.
#include <gtest/gtest.h>

#include <cmath>

#include "spec/plan.h"
#include "steps.h"

namespace sumpter::tests {
namespace {

std::vector<OptimizerOptions> optimizers() {
  return {{.learning_rate = 0.1, .momentum = 0},
          {.learning_rate = 0.1, .momentum = 0.9, .weight_decay = 0.01},
          {.learning_rate = 0.1, .momentum = 0.9, .nesterov = true, .weight_decay = 0.01, .decay_all = false},
          {.kind = OptimizerKind::adam, .learning_rate = 0.01, .weight_decay = 0.01},
          {.kind = OptimizerKind::adamw, .learning_rate = 0.01, .weight_decay = 0.01, .decay_all = false}};
}

Case with_fractions(const OptimizerOptions& optimizer) {
  Case run;
  run.options.optimizer = optimizer;
  run.options.schedule = {.kind = ScheduleKind::cosine, .warmup = 1, .steps = 4, .least = 0.1};
  run.gradient = fractions;
  run.initial = [](int p, std::size_t i) { return fractions(15, 15, p, i); };
  return run;
}

struct Way {
  const char* chunk;
  std::size_t piece;
  int reducers;
};

// All ways of doing the same steps, against the first.
template <typename T>
void expect_same_bits(Case run) {
  run.options.type = sizeof(T) == 4 ? ElementType::f32 : ElementType::f64;
  run.options.update = Update::device;
  const Result<T> first = execute<T>(run);
  for (const Update update : {Update::device, Update::host}) {
    for (const Way& way : {Way{"1layer", 64, 0}, Way{"2layers", 1024, 2}, Way{"all", 1 << 20, 0}}) {
      run.options.update = update;
      run.options.chunk = parse_chunk_rule(way.chunk, "chunk");
      run.piece = way.piece;
      run.reducers = way.reducers;
      SCOPED_TRACE(fmt::format("update {}, chunk {}", name_of(update), way.chunk));
      const Result<T> result = execute<T>(run);
      expect_parameters(result, first.parameters);
      EXPECT_EQ(result.norms, first.norms);
    }
  }
}

std::vector<std::vector<std::uint64_t>> kinds_of_rows() { return {{1}, {2, 3}, {3, 1, 0}, {2, 2, 1, 1}}; }

void expect_same_bits_for_all_rows(const OptimizerOptions& optimizer) {
  for (const std::vector<std::uint64_t>& rows : kinds_of_rows()) {
    Case run = with_fractions(optimizer);
    run.replicas = static_cast<int>(rows.size());
    run.rows = rows_by_rank(rows);
    SCOPED_TRACE(fmt::format("{}, {} replicas", name_of(optimizer.kind), rows.size()));
    expect_same_bits<float>(run);
  }
}

TEST(Optimizers, GiveTheSameBitsOnDevicesAndHost) {
  for (const OptimizerOptions& optimizer : optimizers()) expect_same_bits_for_all_rows(optimizer);
}

TEST(Optimizers, ClippedTheyGiveTheSameBitsToo) {
  for (OptimizerOptions optimizer : optimizers()) {
    optimizer.clip_norm = 1;
    expect_same_bits_for_all_rows(optimizer);
  }
}

// A norm that stays below the limit leaves every gradient as it is.
TEST(Optimizers, ALimitThatIsNotReachedChangesNothing) {
  for (OptimizerOptions optimizer : optimizers()) {
    for (const Update update : {Update::device, Update::host}) {
      Case run = with_fractions(optimizer);
      run.options.update = update;
      run.replicas = 3;
      run.rows = rows_by_rank({3, 1, 0});
      const Result<float> free = execute(run);
      run.options.optimizer.clip_norm = 1e9;
      const Result<float> limited = execute(run);
      expect_parameters(limited, free.parameters);
      EXPECT_GT(limited.norms[2], 0);
    }
  }
}

TEST(Optimizers, Float64GivesTheSameBitsToo) {
  for (const double clip_norm : {0.0, 1.0}) {
    for (OptimizerOptions optimizer : optimizers()) {
      optimizer.clip_norm = clip_norm;
      Case run = with_fractions(optimizer);
      run.replicas = 3;
      run.rows = rows_by_rank({3, 1, 0});
      SCOPED_TRACE(fmt::format("{}, clip {}", name_of(optimizer.kind), clip_norm));
      expect_same_bits<double>(run);
    }
  }
}

// torch's optimizers as its documentation writes them, in double, one number at a time.
class Plain {
 public:
  Plain(const Case& run, int parameter, std::size_t i)
      : run_(run), parameter_(parameter), index_(i), value_(run.initial(parameter, i)) {}

  void step(int number, double scale) {
    const OptimizerOptions& o = run_.options.optimizer;
    const bool decays = o.decay_all || kParameters[static_cast<std::size_t>(parameter_)].shape.size() > 1;
    const double decay = decays ? o.weight_decay : 0, rate = o.learning_rate * run_.options.schedule.factor(number);
    const double gradient = mean(number) * scale;
    if (o.kind == OptimizerKind::sgd) {
      const double g = gradient + decay * value_;
      first_ = o.momentum * first_ + g;
      value_ -= rate * (o.nesterov ? g + o.momentum * first_ : first_);
      return;
    }
    if (o.kind == OptimizerKind::adamw) value_ -= rate * decay * value_;
    const double g = gradient + (o.kind == OptimizerKind::adam ? decay * value_ : 0);
    first_ = o.beta1 * first_ + (1 - o.beta1) * g;
    second_ = o.beta2 * second_ + (1 - o.beta2) * g * g;
    const double m = first_ / (1 - std::pow(o.beta1, number + 1)), v = second_ / (1 - std::pow(o.beta2, number + 1));
    value_ -= rate * m / (std::sqrt(v) + o.epsilon);
  }

  double mean(int number) const {
    double sum = 0;
    for (int rank = 0; rank < run_.replicas; ++rank) {
      sum += run_.gradient(rank, number, parameter_, index_) * static_cast<double>(run_.rows(rank, number)) /
             static_cast<double>(run_.all_rows(number));
    }
    return sum;
  }
  double value() const { return value_; }

 private:
  const Case& run_;
  int parameter_;
  std::size_t index_;
  double value_, first_ = 0, second_ = 0;
};

// The parameters after all steps, one after another.
std::vector<double> plain_values(const Case& run) {
  std::vector<Plain> all;
  for (std::size_t p = 0; p < kParameters.size(); ++p)
    for (std::size_t i = 0; i < kParameters[p].count; ++i) all.emplace_back(run, static_cast<int>(p), i);
  for (int number = 0; number < run.steps; ++number) {
    double squares = 0;
    for (const Plain& plain : all) squares += plain.mean(number) * plain.mean(number);
    const double clip = run.options.optimizer.clip_norm;
    const double scale = clip > 0 ? std::min(1.0, clip / (std::sqrt(squares) + 1e-6)) : 1;
    for (Plain& plain : all) plain.step(number, scale);
  }
  std::vector<double> values;
  values.reserve(all.size());
  for (const Plain& plain : all) values.push_back(plain.value());
  return values;
}

// How far the farthest element is from what it should be.
template <typename T>
double distance(const Values<T>& parameters, const std::vector<double>& want) {
  double farthest = 0;
  auto next = want.begin();
  for (const std::vector<T>& values : parameters)
    for (const T value : values) farthest = std::max(farthest, std::abs(static_cast<double>(value) - *next++));
  return farthest;
}

TEST(Optimizers, AreTorchs) {
  for (const double clip_norm : {0.0, 1.0}) {
    for (OptimizerOptions optimizer : optimizers()) {
      SCOPED_TRACE(fmt::format("{}, clip {}", name_of(optimizer.kind), clip_norm));
      optimizer.clip_norm = clip_norm;
      Case run = with_fractions(optimizer);
      run.rows = rows_by_rank({2, 1});
      const std::vector<double> want = plain_values(run);
      for (const Update update : {Update::device, Update::host}) {
        run.options.update = update;
        run.options.type = ElementType::f32;
        EXPECT_LT(distance(execute<float>(run).parameters, want), 2e-6);
        run.options.type = ElementType::f64;
        EXPECT_LT(distance(execute<double>(run).parameters, want), 1e-12);
      }
    }
  }
}

TEST(Optimizers, DecayMaySpareBiases) {
  for (const Update update : {Update::device, Update::host}) {
    Case run;
    run.options.update = update;
    run.options.optimizer = {.learning_rate = 0.5, .momentum = 0, .weight_decay = 0.5, .decay_all = false};
    run.steps = 2;
    run.gradient = [](int, int, int, std::size_t) { return 0.0; };
    run.initial = [](int, std::size_t) { return 1.0; };
    const Result<float> result = execute(run);
    for (std::size_t p = 0; p < kParameters.size(); ++p) {
      const float want = kParameters[p].shape.size() > 1 ? 0.5625F : 1;
      EXPECT_EQ(result.parameters[p], std::vector<float>(kParameters[p].count, want)) << kParameters[p].name;
    }
  }
}

TEST(Optimizers, TheRateFollowsTheNumberOfTheStep) {
  for (const double clip_norm : {0.0, 1e30}) {
    for (const Update update : {Update::device, Update::host}) {
      Case run;
      run.options.update = update;
      run.options.optimizer = {.learning_rate = 1, .momentum = 0, .clip_norm = clip_norm};
      run.options.schedule = {.kind = ScheduleKind::step, .every = 2, .gamma = 0.5};
      run.reducers = 1;
      run.first = 3;
      run.steps = 4;  // numbers 3 to 6: 1/2 + 1/4 + 1/4 + 1/8
      run.gradient = [](int, int, int, std::size_t) { return 1.0; };
      const Result<float> result = execute(run);
      for (std::size_t p = 0; p < kParameters.size(); ++p)
        EXPECT_EQ(result.parameters[p], std::vector<float>(kParameters[p].count, -1.125F)) << kParameters[p].name;
    }
  }
}

// Zeros but for one element of two parameters, whose mean is 3 and 4.
TEST(Clipping, TellsTheNormOfTheMeanAndScalesIt) {
  for (const Update update : {Update::device, Update::host}) {
    Case run;
    run.replicas = 3;
    run.options.update = update;
    run.options.optimizer = {.learning_rate = 1, .momentum = 0, .clip_norm = 2};
    run.rows = rows_by_rank({2, 2, 0});
    run.steps = 1;
    run.gradient = [](int rank, int, int p, std::size_t i) {
      if (p == 2 && i == 29999) return 6.0 * rank;
      return p == 3 && i == 0 ? 4.0 : 0.0;
    };
    const Result<float> result = execute(run);
    EXPECT_EQ(result.norms, (std::vector<double>{5, 5, 5}));
    Values<float> want = zeros<float>();
    const auto scale = static_cast<float>(2 / (5 + 1e-6));
    want[2][29999] = 0 - 3 * scale;
    want[3][0] = 0 - 4 * scale;
    EXPECT_EQ(result.parameters, want);

    run.options.optimizer.clip_norm = 100;  // nothing to clip
    const Result<float> whole = execute(run);
    EXPECT_EQ(whole.norms, (std::vector<double>{5, 5, 5}));
    EXPECT_EQ(whole.parameters[2][29999], -3);
    run.options.optimizer.clip_norm = 0;
    EXPECT_EQ(execute(run).norms, (std::vector<double>{0, 0, 0}));
  }
}

}  // namespace
}  // namespace sumpter::tests
