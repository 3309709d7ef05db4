// One operation of the group, as a member sees it: what was asked for, how it will be done, how far it is.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "exchange/control.h"
#include "exchange/geometry.h"
#include "sumpter/exchange.h"

namespace sumpter::exchange {

// What one member asks for. `count` is as in Extent. An all_reduce's inputs are its outputs; the root of a broadcast
// has no output.
struct Request {
  Kind kind = Kind::barrier;
  ElementType type = ElementType::u8;
  Reduction reduction = Reduction::sum;
  int root = 0;
  std::size_t count = 0;
  std::uint64_t rows = 1;
  SumConsumer* consumer = nullptr;
  WireFormat wire = WireFormat::f32;  // compared only
  std::string label = {};             // of a barrier, shorter than kLabelBytes
  std::vector<Part> inputs = {}, outputs = {};

  std::size_t element() const { return size_of(type); }
  std::size_t input_bytes(int members) const {
    return count * element() * static_cast<std::size_t>(kind == Kind::reduce_scatter ? members : 1);
  }
  bool reduces() const { return kind == Kind::all_reduce || kind == Kind::reduce_scatter; }
};

enum class Way : std::uint8_t { alone, small, in_place, staged };

// Which members' values count, and for how much.
struct Terms {
  std::array<std::uint8_t, kMaxMembers> ranks{};
  std::array<double, kMaxMembers> scales{};  // weighted_mean only
  std::size_t size = 0;
  bool weighted = false;
  int members = 0;

  std::span<const double> scales_or_none() const { return {scales.data(), weighted ? size : 0}; }
};

// The memory that an in-place operation works on: each member's parts, as addresses that this process can use.
struct Reach {
  std::vector<std::vector<Part>> owned;                // where they had to be looked up
  std::vector<std::span<const Part>> inputs, outputs;  // by rank
  bool complete = true;  // false: somebody's memory is gone already, so that the operation must be over
};

struct Operation {
  Operation(std::uint64_t operation_number, Request asked) : number(operation_number), request(std::move(asked)) {}

  const std::uint64_t number;
  const Request request;
  std::atomic<bool> finished{false};
  std::atomic<bool> reported{false};  // what it would throw has been thrown to its owner

  // All below is set, under the member's mutex, once all members have posted the operation and were found to agree;
  // what reducers read of it does not change afterwards.
  bool matched = false;
  Way way = Way::alone;
  Terms terms;
  InPlaceCut in_place;
  Reach reach;
  StagedCut staged;
  std::uint64_t first_round = 0;  // in the group's count of staged rounds
  std::uint64_t rounds = 0, copied_in = 0, summed = 0, copied_out = 0;
};

// "all_reduce number 12 of 1024 f32, sum"; "gather to rank 1, number 12" of a barrier with a label.
std::string describe(const Operation& operation);

// Where a member's input and output lie, for processes.
struct Places {
  std::uint64_t input = 0, output = 0;
};
// Fills the descriptor but for `ready`.
void write_descriptor(Descriptor& descriptor, const Request& request, const Places& places);
// True when both members ask for the same.
bool same_request(const Descriptor& a, const Descriptor& b);
// "all_reduce number 3 differs: rank 0: ...; rank 2: ...": where the descriptors of two ranks are not the same.
std::string describe_mismatch(const Control& control, std::uint64_t number, int first, int second);

// Floating outputs become NaN; other types, and what is input too without being reduced, stay.
void fill_with_nan(const Request& request);

// From the descriptors of all members.
Terms make_terms(const Control& control, std::uint64_t number, const Request& request);

}  // namespace sumpter::exchange
