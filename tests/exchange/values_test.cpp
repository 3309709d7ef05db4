// Every kind of operation, type, reduction and way, by threads, forked processes and unrelated ones; each element
// checked against plain arithmetic. Values are small integers, so that sums are exact in every type.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "sumpter/exchange.h"
#include "tests/exchange/kinds.h"
#include "tests/support/members.h"

namespace sumpter {
namespace {

using tests::As;
using tests::kReductions;
using tests::kTypes;
using tests::Member;
using tests::run_members;

constexpr int kMembers = 3;

enum class Meet { threads, forked, connected };
enum class Memory { own, arena };

struct Setting {
  Meet meet;
  Memory memory;
  std::size_t count;  // elements of a block
  const char* way;    // as the counters call it
};
void PrintTo(const Setting& setting, std::ostream* out) { *out << setting.way << " of " << setting.count; }

// An array of a type, in the arena or not, read and written as small integers.
class Array {
 public:
  Array(Exchange& exchange, Memory memory, ElementType type, std::size_t count) : type_(type), count_(count) {
    const std::size_t bytes = count * size_of(type);
    if (memory == Memory::arena) {
      shared_ = exchange.allocate(bytes);
      data_ = static_cast<std::byte*>(shared_.data());
    } else {
      own_.resize(bytes);
      data_ = own_.data();
    }
  }
  Part part() const { return {data_, count_}; }
  Part part(std::size_t begin, std::size_t count) const { return {data_ + begin * size_of(type_), count}; }

  void set(std::size_t i, int value) {
    with(
        i, [&](auto& element) { element = static_cast<std::remove_reference_t<decltype(element)>>(value); },
        [&](WireFormat format, std::byte* at) {
          const auto number = static_cast<float>(value);
          kernels::encode(format, &number, at, 1);
        });
  }
  int get(std::size_t i) const {
    int value = 0;
    with(
        i, [&](const auto& element) { value = static_cast<int>(element); },
        [&](WireFormat format, const std::byte* at) {
          float number = 0;
          kernels::decode(format, at, &number, 1);
          value = static_cast<int>(number);
        });
    return value;
  }

 private:
  template <typename Plain, typename Half>
  void with(std::size_t i, Plain&& plain, Half&& half) const {
    std::byte* const at = data_ + i * size_of(type_);
    switch (type_) {
      case ElementType::f32:
        return plain(*reinterpret_cast<float*>(at));
      case ElementType::f64:
        return plain(*reinterpret_cast<double*>(at));
      case ElementType::bf16:
        return half(WireFormat::bf16, at);
      case ElementType::f16:
        return half(WireFormat::f16, at);
      case ElementType::i8:
        return plain(*reinterpret_cast<std::int8_t*>(at));
      case ElementType::u8:
      case ElementType::boolean:
        return plain(*reinterpret_cast<std::uint8_t*>(at));
      case ElementType::i16:
        return plain(*reinterpret_cast<std::int16_t*>(at));
      case ElementType::i32:
        return plain(*reinterpret_cast<std::int32_t*>(at));
      case ElementType::i64:
        return plain(*reinterpret_cast<std::int64_t*>(at));
    }
  }

  ElementType type_;
  std::size_t count_;
  SharedMemory shared_;
  std::vector<std::byte> own_;
  std::byte* data_ = nullptr;
};

// Multiples of 12, so that means are exact; 0 and 1 for booleans.
int input(ElementType type, int rank, std::size_t i) {
  const auto step = static_cast<int>((i * 7 + static_cast<std::size_t>(rank) * 3) % 4);
  return type == ElementType::boolean ? step % 2 : type == ElementType::f32 ? 12 * (step - 1) : 12 * (step % 3);
}
// One member without rows; a quarter and three quarters are exact.
std::uint64_t rows_of(int rank) { return rank == 0 ? 0 : rank == 1 ? 1 : 3; }

int expected(ElementType type, Reduction reduction, std::size_t i) {
  const int a = input(type, 0, i), b = input(type, 1, i), c = input(type, 2, i);
  switch (reduction) {
    case Reduction::sum:
      return type == ElementType::boolean ? a | b | c : a + b + c;
    case Reduction::average:
      return (a + b + c) / 3;
    case Reduction::weighted_mean:
      return b / 4 + c / 4 * 3;
    case Reduction::minimum:
      return std::min({a, b, c});
    case Reduction::maximum:
      return std::max({a, b, c});
    case Reduction::product:
      return type == ElementType::i8   ? static_cast<std::int8_t>(a * b * c)
             : type == ElementType::u8 ? static_cast<std::uint8_t>(a * b * c)
                                       : a * b * c;
    case Reduction::bitwise_and:
      return a & b & c;
    case Reduction::bitwise_or:
      return a | b | c;
    case Reduction::bitwise_xor:
      return a ^ b ^ c;
  }
  return -1;
}

// What a member's body throws when an element is wrong.
void check(int found, int wanted, const std::string& what, std::size_t i) {
  if (found != wanted) {
    throw std::logic_error(what + ": element " + std::to_string(i) + " is " + std::to_string(found) + ", not " +
                           std::to_string(wanted));
  }
}

class Values : public ::testing::TestWithParam<Setting> {
 protected:
  // Runs the body on every member of a group.
  static void run(const GroupOptions& options, const std::function<void(Exchange&)>& body) {
    const Meet meet = GetParam().meet;
    const auto directory = std::filesystem::path(::testing::TempDir()) / ("sumpter-values-" + std::to_string(getpid()));
    std::filesystem::remove_all(directory);
    std::unique_ptr<Group> group;
    if (meet != Meet::connected) group = std::make_unique<Group>(options);
    const auto outcomes = run_members(kMembers, meet == Meet::threads ? As::threads : As::processes, [&](Member& me) {
      FileRendezvous rendezvous(directory);
      Exchange exchange = group ? group->join(me.rank()) : Exchange::connect(me.rank(), options, rendezvous);
      body(exchange);
      const ExchangeCounters counters = exchange.counters();
      const std::string way = GetParam().way;
      const std::uint64_t used = way == "in_place" ? counters.in_place
                                 : way == "staged" ? counters.staged
                                                   : counters.small;
      if (used != counters.operations || used == 0) throw std::logic_error("operations were not done " + way);
    });
    std::filesystem::remove_all(directory);
    for (const auto& outcome : outcomes) EXPECT_TRUE(outcome.done) << describe(outcome);
  }
  static Array array(Exchange& exchange, ElementType type, std::size_t count) {
    return {exchange, GetParam().memory, type, count};
  }
};

INSTANTIATE_TEST_SUITE_P(Exchange, Values,
                         ::testing::Values(Setting{Meet::threads, Memory::own, 20'011, "in_place"},
                                           Setting{Meet::threads, Memory::arena, 20'011, "in_place"},
                                           Setting{Meet::threads, Memory::own, 101, "small"},
                                           Setting{Meet::forked, Memory::own, 20'011, "staged"},
                                           Setting{Meet::forked, Memory::arena, 20'011, "in_place"},
                                           Setting{Meet::forked, Memory::own, 101, "small"},
                                           Setting{Meet::connected, Memory::own, 20'011, "staged"},
                                           Setting{Meet::connected, Memory::arena, 20'011, "in_place"},
                                           Setting{Meet::connected, Memory::own, 101, "small"}),
                         [](const auto& instance) {
                           const Setting& setting = instance.param;
                           const char* meet = setting.meet == Meet::threads  ? "threads"
                                              : setting.meet == Meet::forked ? "forked"
                                                                             : "connected";
                           return std::string(meet) + (setting.memory == Memory::own ? "_own_" : "_arena_") +
                                  setting.way;
                         });

TEST_P(Values, AllReduceOfEveryTypeAndReduction) {
  run({.members = kMembers, .piece = 4'096}, [](Exchange& exchange) {
    for (const ElementType type : kTypes) {
      for (const Reduction reduction : kReductions) {
        if (!supports(type, reduction)) continue;
        const std::string what = std::string(name_of(reduction)) + " of " + std::string(name_of(type));
        Array values = array(exchange, type, GetParam().count);
        for (std::size_t i = 0; i < GetParam().count; ++i) values.set(i, input(type, exchange.rank(), i));
        exchange.all_reduce(values.part(), {.type = type, .reduction = reduction, .rows = rows_of(exchange.rank())});
        for (std::size_t i = 0; i < GetParam().count; ++i) check(values.get(i), expected(type, reduction, i), what, i);
      }
    }
  });
}

TEST_P(Values, ReduceScatterOfEveryTypeAndReduction) {
  run({.members = kMembers, .piece = 4'096}, [](Exchange& exchange) {
    const std::size_t count = GetParam().count, first = static_cast<std::size_t>(exchange.rank()) * count;
    for (const ElementType type : kTypes) {
      for (const Reduction reduction : kReductions) {
        if (!supports(type, reduction)) continue;
        const std::string what = std::string(name_of(reduction)) + " of " + std::string(name_of(type));
        Array from = array(exchange, type, kMembers * count), to = array(exchange, type, count);
        for (std::size_t i = 0; i < kMembers * count; ++i) from.set(i, input(type, exchange.rank(), i));
        exchange
            .begin_reduce_scatter(from.part(), to.part(),
                                  {.type = type, .reduction = reduction, .rows = rows_of(exchange.rank())})
            .wait();
        for (std::size_t i = 0; i < count; ++i) {
          check(to.get(i), expected(type, reduction, first + i), what, i);
          check(from.get(first + i), input(type, exchange.rank(), first + i), "the input after it", first + i);
        }
      }
    }
  });
}

TEST_P(Values, AllGatherAlsoOfTheOwnBlockOfTheOutput) {
  run({.members = kMembers, .piece = 4'096}, [](Exchange& exchange) {
    const std::size_t count = GetParam().count, first = static_cast<std::size_t>(exchange.rank()) * count;
    for (const ElementType type : kTypes) {
      for (const bool own_block : {false, true}) {
        Array from = array(exchange, type, count), to = array(exchange, type, kMembers * count);
        const Part part = own_block ? to.part(first, count) : from.part();
        for (std::size_t i = 0; i < count; ++i)
          (own_block ? to : from).set(own_block ? first + i : i, input(type, exchange.rank(), i));
        exchange.begin_all_gather(part, to.part(), type).wait();
        for (std::size_t i = 0; i < kMembers * count; ++i) {
          check(to.get(i), input(type, static_cast<int>(i / count), i % count), std::string(name_of(type)), i);
        }
      }
    }
  });
}

TEST_P(Values, BroadcastFromEveryRoot) {
  run({.members = kMembers, .piece = 4'096}, [](Exchange& exchange) {
    for (const ElementType type : kTypes) {
      for (int root = 0; root < kMembers; ++root) {
        Array values = array(exchange, type, GetParam().count);
        for (std::size_t i = 0; i < GetParam().count; ++i) values.set(i, input(type, exchange.rank(), i));
        exchange.broadcast(values.part(), type, root);
        for (std::size_t i = 0; i < GetParam().count; ++i) check(values.get(i), input(type, root, i), "broadcast", i);
      }
    }
  });
}

TEST_P(Values, PiecesOfOneLineAndPiecesLargerThanEverything) {
  for (const std::size_t piece : {std::size_t{64}, std::size_t{16} << 20}) {
    run({.members = kMembers, .piece = piece, .window = 1}, [](Exchange& exchange) {
      Array values = array(exchange, ElementType::f32, GetParam().count);
      for (int round = 0; round < 3; ++round) {
        for (std::size_t i = 0; i < GetParam().count; ++i) values.set(i, input(ElementType::f32, exchange.rank(), i));
        exchange.all_reduce(values.part());
        for (std::size_t i = 0; i < GetParam().count; ++i) {
          check(values.get(i), expected(ElementType::f32, Reduction::sum, i), "all_reduce", i);
        }
      }
    });
  }
}

TEST_P(Values, ManyOperationsInFlightFinishInAnyOrder) {
  constexpr int kOperations = 200;  // more than the ring of descriptors holds
  run({.members = kMembers, .piece = 4'096, .reducers = 1}, [](Exchange& exchange) {
    std::vector<Array> arrays;
    std::vector<Work> works;
    for (int n = 0; n < kOperations; ++n) {
      arrays.push_back(array(exchange, ElementType::i32, GetParam().count));
      for (std::size_t i = 0; i < GetParam().count; ++i) arrays.back().set(i, n + exchange.rank());
      const Part part = arrays.back().part();
      works.push_back(exchange.begin_all_reduce({&part, 1}, {.type = ElementType::i32}));
      if (n % 3 == 0) works.back().test();
    }
    for (int n = kOperations - 1; n >= 0; n -= 2) works[static_cast<std::size_t>(n)].wait();
    for (Work& work : works) {
      while (!work.test()) {
      }
    }
    for (int n = 0; n < kOperations; ++n) {
      for (std::size_t i = 0; i < GetParam().count; ++i)
        check(arrays[static_cast<std::size_t>(n)].get(i), 3 * n + 3, "all_reduce", i);
    }
  });
}

}  // namespace
}  // namespace sumpter
