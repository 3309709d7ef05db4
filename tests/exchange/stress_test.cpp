// Random operations from a seed: every kind, type, reduction, place and length, up to eight in flight, tested and
// waited for in any order by members that dawdle. Every element of every result is checked. Values are chosen so that
// all arithmetic is exact in every type, whatever the order.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "sumpter/exchange.h"
#include "tests/exchange/random_operations.h"
#include "tests/support/members.h"
#include "tests/support/prove.h"

namespace sumpter {
namespace {

using tests::As;
using tests::below;
using tests::Kind;
using tests::Member;
using tests::Outcome;
using tests::Random;
using tests::run_members;
using tests::Schedule;
using tests::Step;
using tests::Where;

// Bytes in the arena or in memory of the member's own, at an odd place if it is own.
class Bytes {
 public:
  Bytes(Exchange& exchange, bool in_arena, std::size_t bytes) : bytes_(bytes) {
    if (in_arena && bytes > 0) {
      shared_ = exchange.allocate(bytes);
    } else {
      own_.resize(bytes + 8);
    }
  }
  unsigned char* data() {
    return shared_.data() != nullptr ? static_cast<unsigned char*>(shared_.data()) : own_.data() + 8;
  }
  std::size_t size() const { return bytes_; }

 private:
  std::size_t bytes_;
  SharedMemory shared_;
  std::vector<unsigned char> own_;
};

// An operation under way at one member, and what must lie in its memory when it is finished.
class Running {
 public:
  Running(Exchange& exchange, Schedule& schedule, std::size_t index, Random& random)
      : schedule_(schedule),
        index_(index),
        step_(schedule.steps[index]),
        rank_(exchange.rank()),
        width_(size_of(step_.type)),
        block_(std::accumulate(step_.counts.begin(), step_.counts.end(), std::size_t{0})),
        input_(exchange, in_arena(random), step_.kind == Kind::reduce_scatter ? all() : one()),
        output_(exchange, in_arena(random), step_.kind == Kind::all_gather ? all() : one()) {
    begin(exchange);
  }

  Work work;

  void check() {
    const std::uint64_t seed = schedule_.seed_of(index_);
    const auto rank = static_cast<std::size_t>(rank_);
    switch (step_.kind) {
      case Kind::all_reduce:
        if (!step_.consumed) {
          compare(input_, [&](std::size_t i) { return tests::reduced(step_, seed, i); });
        }
        break;
      case Kind::broadcast:
        compare(input_, [&](std::size_t i) { return tests::input_value(step_, seed, step_.root, i); });
        break;
      case Kind::all_gather:
        compare(output_, [&](std::size_t i) {
          return tests::input_value(step_, seed, static_cast<int>(i / block_), i % block_);
        });
        break;
      case Kind::reduce_scatter:
        compare(output_, [&](std::size_t i) { return tests::reduced(step_, seed, rank * block_ + i); });
        break;
      case Kind::barrier:
        break;
    }
  }

  // What an operation that raised leaves in its output, if that is of floats.
  void check_nan() {
    const bool from_here = step_.kind == Kind::broadcast && rank_ == step_.root;
    if (step_.kind == Kind::barrier || from_here) {
      return;
    }
    Bytes& bytes = step_.kind == Kind::all_reduce || step_.kind == Kind::broadcast ? input_ : output_;
    for (std::size_t i = 0; i < bytes.size() / width_; ++i) {
      if (!tests::is_nan_or_integer(step_.type, bytes.data(), i)) {
        raise<std::logic_error>("rank {}, operation {} (kind {}, {}): it raised, but element {} is not NaN", rank_,
                                index_ + 1, static_cast<int>(step_.kind), name_of(step_.type), i);
      }
    }
  }

 private:
  std::size_t one() const { return block_ * width_; }
  std::size_t all() const { return one() * static_cast<std::size_t>(schedule_.members); }
  bool in_arena(Random& random) const {
    return step_.where == Where::arena || (step_.where == Where::mixed && below(random, 2) == 0);
  }

  void begin(Exchange& exchange) {
    const std::uint64_t seed = schedule_.seed_of(index_);
    for (std::size_t i = 0; i < input_.size() / width_; ++i) {
      tests::store_value(step_.type, input_.data(), i, tests::input_value(step_, seed, rank_, i));
    }
    const AllReduceOptions options{.type = step_.type,
                                   .reduction = step_.reduction,
                                   .rows = step_.rows[static_cast<std::size_t>(rank_)],
                                   .consumer = schedule_.consumers[index_].get()};
    const Part input{input_.data(), input_.size() / width_};
    const Part output{output_.data(), output_.size() / width_};
    switch (step_.kind) {
      case Kind::all_reduce:
        work = exchange.begin_all_reduce(parts(), options);
        break;
      case Kind::broadcast:
        work = exchange.begin_broadcast(input, step_.type, step_.root);
        break;
      case Kind::all_gather:
        work = exchange.begin_all_gather(input, output, step_.type);
        break;
      case Kind::reduce_scatter:
        work = exchange.begin_reduce_scatter(input, output, options);
        break;
      case Kind::barrier:
        work = exchange.begin_barrier();
        break;
    }
  }

  std::vector<Part> parts() {
    std::vector<Part> parts;
    unsigned char* at = input_.data();
    for (const std::size_t count : step_.counts) {
      parts.push_back({at, count});
      at += count * width_;
    }
    return parts;
  }

  template <typename Expected>
  void compare(Bytes& bytes, const Expected& expected) {
    std::uint64_t one_value = 0;
    for (std::size_t i = 0; i < bytes.size() / width_; ++i) {
      const int value = expected(i);
      tests::store_value(step_.type, &one_value, 0, value);
      if (std::memcmp(bytes.data() + i * width_, &one_value, width_) != 0) {
        raise<std::logic_error>("rank {}, operation {} (kind {}, {}, {}, {} elements, place {}): element {} is not {}",
                                rank_, index_ + 1, static_cast<int>(step_.kind), name_of(step_.type),
                                name_of(step_.reduction), block_, static_cast<int>(step_.where), i, value);
      }
    }
  }

  Schedule& schedule_;
  std::size_t index_;
  const Step& step_;
  int rank_;
  std::size_t width_;
  std::size_t block_;
  Bytes input_, output_;
};

void dawdle(Random& random) {
  if (below(random, 4) == 0) {
    std::this_thread::sleep_for(std::chrono::microseconds(below(random, 300)));
  }
}

void finish_one(std::deque<std::unique_ptr<Running>>& running, Random& random) {
  const auto chosen = running.begin() + static_cast<std::ptrdiff_t>(below(random, running.size()));
  std::unique_ptr<Running> one = std::move(*chosen);
  running.erase(chosen);
  switch (below(random, 3)) {
    case 0:
      while (!one->work.test()) {
        std::this_thread::yield();
      }
      break;
    case 1:
      one->work = Work();  // abandoned: the destructor waits
      break;
    default:
      one->work.wait();
  }
  one->check();
}

void run_member(Exchange& exchange, Schedule& schedule) {
  Random random(schedule.seed * 64 + static_cast<std::uint64_t>(exchange.rank()) + 1);
  std::deque<std::unique_ptr<Running>> running;
  for (std::size_t index = 0; index < schedule.steps.size(); ++index) {
    dawdle(random);
    running.push_back(std::make_unique<Running>(exchange, schedule, index, random));
    if (below(random, 3) == 0) {
      running[below(random, running.size())]->work.test();
    }
    while (running.size() > 8 || (!running.empty() && below(random, 3) == 0)) {
      finish_one(running, random);
    }
  }
  while (!running.empty()) {
    finish_one(running, random);
  }
}

// A member of a group that loses another: every operation is whole, or raises and leaves NaN.
void run_until_lost(Exchange& exchange, Schedule& schedule) {
  Random random(schedule.seed * 64 + static_cast<std::uint64_t>(exchange.rank()) + 1);
  std::deque<std::unique_ptr<Running>> running;
  std::exception_ptr lost;
  const auto finish_oldest = [&] {
    Running& oldest = *running.front();
    try {
      oldest.work.wait();
      oldest.check();
    } catch (const MemberLostError&) {
      oldest.check_nan();
      lost = std::current_exception();
    }
    running.pop_front();
  };
  for (std::size_t index = 0; !lost; index = (index + 1) % schedule.steps.size()) {
    try {
      running.push_back(std::make_unique<Running>(exchange, schedule, index, random));
    } catch (const MemberLostError&) {
      lost = std::current_exception();
    }
    if (running.size() > 4) {
      finish_oldest();
    }
  }
  while (!running.empty()) {
    finish_oldest();
  }
  std::rethrow_exception(lost);
}

void kill_in_schedule(std::uint64_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  const GroupOptions options{.members = 3, .piece = 16'384, .reducers = static_cast<int>(below(random, 2))};
  const int victim = static_cast<int>(below(random, 3));
  const std::chrono::microseconds delay(below(random, 60'000));
  Schedule schedule(seed, options, As::processes, 100);
  Group group(options);
  const auto outcomes = run_members(options.members, As::processes, [&](Member& me) {
    Exchange exchange = group.join(me.rank());
    if (me.rank() == victim) {
      tests::signal_myself_after(SIGKILL, delay);
    }
    run_until_lost(exchange, schedule);
  });
  for (const Outcome& outcome : outcomes) {
    if (outcome.rank == victim) {
      EXPECT_EQ(outcome.signal, SIGKILL) << describe(outcome);
    } else {
      EXPECT_EQ(outcome.kind, "MemberLostError") << describe(outcome);
      EXPECT_EQ(outcome.culprit, victim) << describe(outcome);
    }
  }
}

TEST(RandomOperationsOfProcesses, AreWholeOrNaNWhenARankIsKilled) {
  for (std::uint64_t seed = 1; seed <= 12 && !::testing::Test::HasFailure(); ++seed) {
    kill_in_schedule(seed);
  }
}

TEST(ProveRandomOperationsOfProcesses, AreWholeOrNaNAtThreeHundredKills) {
  SUMPTER_PROVE_ONLY();
  for (std::uint64_t seed = 1'000; seed < 1'300 && !::testing::Test::HasFailure(); ++seed) {
    kill_in_schedule(seed);
  }
}

void check_consumed(const Schedule& schedule) {
  for (std::size_t index = 0; index < schedule.steps.size(); ++index) {
    if (schedule.consumers[index] != nullptr) {
      std::size_t i = 0;
      for (const auto& part : schedule.consumers[index]->sums()) {
        for (const float sum : part) {
          ASSERT_EQ(sum, tests::reduced(schedule.steps[index], schedule.seed_of(index), i))
              << "operation " << index + 1;
          ++i;
        }
      }
    }
  }
}

void run_schedule(std::uint64_t seed, As as, int length) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  constexpr std::size_t kPieces[] = {64, 4'096, 65'536, std::size_t{1} << 20};
  const GroupOptions options{.members = 2 + static_cast<int>(below(random, 3)),
                             .piece = tests::one_of(random, kPieces),
                             .reducers = static_cast<int>(below(random, 3)),
                             .window = 1 + static_cast<int>(below(random, 4)),
                             .time_limit = std::chrono::seconds(60)};
  Schedule schedule(seed, options, as, length);
  Group group(options);
  const auto outcomes = run_members(
      options.members, as,
      [&](Member& me) {
        Exchange exchange = group.join(me.rank());
        run_member(exchange, schedule);
      },
      std::chrono::minutes(3));
  for (const Outcome& outcome : outcomes) {
    EXPECT_TRUE(outcome.done) << describe(outcome);
  }
  check_consumed(schedule);
}

class RandomOperations : public ::testing::TestWithParam<As> {};
INSTANTIATE_TEST_SUITE_P(Exchange, RandomOperations, ::testing::Values(As::threads, As::processes),
                         [](const auto& as) { return std::string(tests::name_of(as.param)); });

TEST_P(RandomOperations, GiveEveryElement) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    run_schedule(seed, GetParam(), 50);
    if (HasFailure()) {
      break;
    }
  }
}

class ProveRandomOperations : public RandomOperations {};
INSTANTIATE_TEST_SUITE_P(Exchange, ProveRandomOperations, ::testing::Values(As::threads, As::processes),
                         [](const auto& as) { return std::string(tests::name_of(as.param)); });

TEST_P(ProveRandomOperations, GiveEveryElementForManySeeds) {
  SUMPTER_PROVE_ONLY();
  for (std::uint64_t seed = 1'000; seed < 1'150 && !HasFailure(); ++seed) {
    run_schedule(seed, GetParam(), 200);
  }
}

}  // namespace
}  // namespace sumpter
