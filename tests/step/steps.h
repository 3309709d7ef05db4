// Runs steps of several replicas, threads of this process, on gradients that a formula gives, and hands back all that
// came of them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "step/step.h"

namespace sumpter::tests {

// Two modules of a weight and a bias each, one of a weight only; two of them larger than a block of the norm.
inline const std::vector<ParameterInfo> kParameters = {{"a.weight", 1000, 0, {10, 100}},
                                                       {"a.bias", 10, 0, {10}},
                                                       {"b.weight", 30000, 1, {3, 100, 100}},
                                                       {"b.bias", 7, 1, {7}},
                                                       {"c.weight", 5003, 2, {1, 5003}}};

template <typename T>
using Values = std::vector<std::vector<T>>;  // by parameter
template <typename T>
using State = std::map<std::string, std::vector<T>>;

template <typename T>
Values<T> zeros() {
  Values<T> values;
  for (const ParameterInfo& parameter : kParameters) values.emplace_back(parameter.count, T{0});
  return values;
}

template <typename T>
std::vector<void*> addresses(Values<T>& values) {
  std::vector<void*> all;
  for (std::vector<T>& one : values) all.push_back(one.data());
  return all;
}

// By rank, parameter and element, of the step with that number.
using Gradient = std::function<double(int rank, int step, int parameter, std::size_t i)>;

// Small whole numbers, so that every sum is exact.
inline double small_numbers(int rank, int step, int parameter, std::size_t i) {
  return (rank + 1) * (static_cast<int>(i) % 5 + parameter) + step;
}

// Fractions of many bits, of either sign, so that every rounding shows.
inline double fractions(int rank, int step, int parameter, std::size_t i) {
  const std::uint64_t key =
      (static_cast<std::uint64_t>(rank + 16 * step) * 8 + static_cast<std::uint64_t>(parameter)) << 20 | i;
  const std::uint64_t hash = (key + 1) * 0x9e3779b97f4a7c15U;
  return static_cast<double>(hash >> 40) / 0x1p23 - 1;
}

struct Case {
  int replicas = 2;
  StepOptions options = {};
  std::size_t piece = 4096;
  int reducers = 0;
  int first = 0;  // number of the first step
  int steps = 3;
  std::function<std::uint64_t(int rank, int step)> rows = [](int, int) { return std::uint64_t{1}; };
  std::vector<std::vector<int>> order = {{4, 3, 2, 1, 0}};  // by rank, the last one for all that follow
  Gradient gradient = small_numbers;
  std::function<double(int parameter, std::size_t i)> initial = [](int, std::size_t) { return 0.0; };

  std::uint64_t all_rows(int step) const {
    std::uint64_t all = 0;
    for (int rank = 0; rank < replicas; ++rank) all += rows(rank, step);
    return all;
  }
};

// The same in every step.
inline std::function<std::uint64_t(int rank, int step)> rows_by_rank(std::vector<std::uint64_t> rows) {
  return [rows = std::move(rows)](int rank, int) { return rows[static_cast<std::size_t>(rank)]; };
}

// What a checkpoint would keep.
template <typename T>
struct Saved {
  Values<T> parameters;         // the true values
  State<T> shared;              // the context's
  std::vector<State<T>> state;  // by rank
};

template <typename T>
struct Result {
  Values<T> parameters;                  // rank 0's, or the shared ones as replicas see them
  std::vector<Values<T>> all;            // by rank; update=device
  std::vector<std::string> faults;       // by rank, "" where there was none
  std::vector<std::uint64_t> chunks;     // by rank
  std::vector<std::uint64_t> overflows;  // by rank
  std::vector<double> norms;             // by rank
  std::vector<Chunk> plan;
  Saved<T> saved;
};

template <typename T>
State<T> copy(const std::vector<StateArray>& arrays) {
  State<T> state;
  for (const StateArray& array : arrays) {
    std::size_t count = 1;
    for (const std::int64_t size : array.shape) count *= static_cast<std::size_t>(size);
    const auto* const data = static_cast<const T*>(array.data);
    state[array.name].assign(data, data + count);
  }
  return state;
}

// Each array from the first of the two that has it.
template <typename T>
void fill(const std::vector<StateArray>& arrays, const State<T>& one, const State<T>& other) {
  for (const StateArray& array : arrays) {
    const std::vector<T>& values = one.contains(array.name) ? one.at(array.name) : other.at(array.name);
    std::copy(values.begin(), values.end(), static_cast<T*>(array.data));
  }
}

using Meddle = std::function<void(int rank, int step)>;

template <typename T>
void train(const Case& run, Exchange& exchange, ReplicaStep& step, Values<T>& gradients, const Meddle& meddle) {
  const int rank = exchange.rank();
  const std::vector<int>& order = run.order[std::min(static_cast<std::size_t>(rank), run.order.size() - 1)];
  for (int number = run.first; number < run.first + run.steps; ++number) {
    for (int p = 0; p < static_cast<int>(kParameters.size()); ++p) step.wait_for_parameter(p);
    const std::uint64_t rows = run.rows(rank, number);
    step.begin_step({.rows = rows, .number = static_cast<std::uint64_t>(number)});
    if (rows > 0) {
      for (const int p : order) {
        std::vector<T>& values = gradients[static_cast<std::size_t>(p)];
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<T>(run.gradient(rank, number, p, i));
        step.gradient_final(p, values.data());
      }
    }
    if (meddle) meddle(rank, number);
    step.backward_done();
  }
  step.finish();
  exchange.barrier();
}

template <typename T>
class Execution {
 public:
  Execution(const Case& run, const Saved<T>* from, const Meddle& meddle)
      : run_(run), from_(from), meddle_(meddle), ranks_(static_cast<std::size_t>(run.replicas)) {
    result_.all.resize(ranks_);
    result_.faults.resize(ranks_);
    result_.chunks.resize(ranks_);
    result_.overflows.resize(ranks_);
    result_.norms.resize(ranks_);
    result_.saved.state.resize(ranks_);
    result_.parameters = initial();
  }

  Result<T> run() {
    StepContext context(kParameters, run_.options, host() ? addresses(result_.parameters) : std::vector<void*>{});
    if (from_ != nullptr && host()) {
      for (std::size_t p = 0; p < kParameters.size(); ++p)
        std::copy(from_->parameters[p].begin(), from_->parameters[p].end(), static_cast<T*>(context.parameter(p)));
      context.refresh();
      fill(context.state(), from_->shared, from_->state.front());
    }
    Group group({.members = run_.replicas,
                 .piece = run_.piece,
                 .reducers = run_.reducers,
                 .time_limit = std::chrono::seconds(60)});
    {
      std::vector<std::jthread> threads;
      for (int rank = 0; rank < run_.replicas; ++rank)
        threads.emplace_back([&, rank] { replica(context, group, rank); });
    }
    result_.plan = context.chunks();
    result_.saved.shared = copy<T>(context.state());
    if (!host()) result_.parameters = result_.all[0];
    result_.saved.parameters = result_.parameters;
    for (std::size_t p = 0; host() && p < kParameters.size(); ++p) {
      const auto* const values = static_cast<const T*>(context.parameter(p));
      result_.saved.parameters[p].assign(values, values + kParameters[p].count);
    }
    return std::move(result_);
  }

 private:
  bool host() const { return run_.options.update == Update::host; }

  Values<T> initial() const {
    Values<T> values = zeros<T>();
    for (std::size_t p = 0; p < values.size(); ++p)
      for (std::size_t i = 0; i < values[p].size(); ++i)
        values[p][i] = static_cast<T>(run_.initial(static_cast<int>(p), i));
    return values;
  }

  void replica(StepContext& context, Group& group, int number) {
    const auto rank = static_cast<std::size_t>(number);
    try {
      Exchange exchange = group.join(number);
      Values<T> own = from_ != nullptr ? from_->parameters : initial();
      Values<T> gradients = zeros<T>();  // the others may read them until the step has ended or aborted
      ReplicaStep step(context, exchange, host() ? std::vector<void*>{} : addresses(own));
      if (from_ != nullptr) fill(step.state(), from_->state[rank], from_->shared);
      train(run_, exchange, step, gradients, meddle_);
      result_.chunks[rank] = step.chunks_exchanged();
      result_.overflows[rank] = step.overflows();
      result_.norms[rank] = step.gradient_norm();
      result_.saved.state[rank] = copy<T>(step.state());
      if (!host()) result_.all[rank] = own;
    } catch (...) {
      result_.faults[rank] = describe(std::current_exception());
    }
  }

  const Case& run_;
  const Saved<T>* from_;
  const Meddle& meddle_;
  std::size_t ranks_;
  Result<T> result_;
};

// All steps; where `from` is given, they go on from what it holds.
template <typename T = float>
Result<T> execute(const Case& run, const Saved<T>* from = nullptr, const Meddle& meddle = {}) {
  return Execution<T>(run, from, meddle).run();
}

// The same bits in every element.
template <typename T>
void expect_same(const std::vector<T>& found, const std::vector<T>& want, const std::string& what) {
  ASSERT_EQ(found.size(), want.size()) << what;
  for (std::size_t i = 0; i < want.size(); ++i)
    ASSERT_EQ(std::memcmp(&found[i], &want[i], sizeof(T)), 0)
        << what << "[" << i << "]: " << found[i] << ", not " << want[i];
}

// No fault, and these parameters on every replica.
template <typename T>
void expect_parameters(const Result<T>& result, const Values<T>& want) {
  for (const std::string& fault : result.faults) ASSERT_EQ(fault, "");
  for (std::size_t p = 0; p < want.size(); ++p) {
    expect_same(result.parameters[p], want[p], kParameters[p].name);
    for (std::size_t rank = 0; rank < result.all.size(); ++rank) {
      if (!result.all[rank].empty())  // update=device
        expect_same(result.all[rank][p], want[p], fmt::format("replica {}'s {}", rank, kParameters[p].name));
    }
  }
}

}  // namespace sumpter::tests
