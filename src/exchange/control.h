// The part of the arena that members signal through: its layout, and typed access to it. Everything that more than one
// process touches is a lock-free atomic on a cache line of its own; what the creator writes before others see the arena
// is plain. All words start at zero, which is what fresh memory holds.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/units.h"

namespace sumpter::exchange {

inline constexpr std::size_t kLine = 64;    // bytes of a cache line
inline constexpr std::size_t kPage = 4096;  // alignment of everything that is mapped or allocated
inline constexpr int kMaxMembers = 64;
inline constexpr std::uint64_t kRing = 64;             // operations that a member may be ahead of the slowest
inline constexpr std::size_t kSmallBytes = 16 * kKiB;  // operations up to this many bytes per member are small
inline constexpr std::size_t kMaxSegments = 1024;
inline constexpr std::size_t kLabelBytes = 48;  // of a barrier's label, the zero at its end included
inline constexpr std::uint64_t kProtocol = 2;   // changes with this layout

static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free);

inline constexpr std::size_t round_up(std::size_t value, std::size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// A word that only grows.
struct alignas(kLine) Word {
  std::atomic<std::uint64_t> value;
};

// Where waiters sleep (bell.h).
struct alignas(kLine) Bell {
  std::atomic<std::uint32_t> epoch;
  std::atomic<std::uint32_t> sleepers;
};

// What a member says about its operation of a number. `ready` holds that number and is stored last.
struct alignas(kLine) Descriptor {
  std::atomic<std::uint64_t> ready;
  std::atomic<std::uint64_t> what;    // kind, type, reduction, root, wire (operation.h)
  std::atomic<std::uint64_t> count;   // elements
  std::atomic<std::uint64_t> layout;  // number of parts and a hash of their counts
  std::atomic<std::uint64_t> input;   // where it lies (arena.h)
  std::atomic<std::uint64_t> output;
  std::atomic<std::uint64_t> rows;
  std::atomic<std::uint64_t> consumer;  // its address; compared, for members of one process only
  std::atomic<std::uint64_t> label[kLabelBytes / sizeof(std::uint64_t)];  // of a barrier, else old
};

// One member's share of an operation done in place: number << kIndexBits | pieces claimed, or finished.
struct alignas(kLine) Share {
  std::atomic<std::uint64_t> claimed;
  std::atomic<std::uint64_t> done;
};
inline constexpr unsigned kIndexBits = 24;

enum class Presence : std::uint32_t { absent, joining, joined, left };

struct alignas(kLine) RankBlock {
  std::atomic<Presence> presence;
  std::atomic<std::uint32_t> beats;  // 1: cannot watch by pidfd, so everyone has to advance `heartbeat`
  std::atomic<std::uint64_t> pid;
  std::atomic<std::uint64_t> start_time;  // of the process, in clock ticks since boot: tells a reused pid
  Word left;                              // every operation up to this number is finished by this member
  Word arrived;                           // staged rounds copied in
  Word reduced;                           // staged rounds whose sum this member has done
  Word taken;                             // staged rounds copied out: their slots may be used again
  Word in_flight;                         // claims being worked on by this member's threads
  Word heartbeat;
  Bell waiters;   // callers that wait
  Bell reducers;  // reducer threads without work
  Bell called;    // those who wait to be called
};

enum class Fault : std::uint32_t { mismatch, timeout, lost };
enum class AbortState : std::uint32_t { none, writing, written };

// The first fault of a group, written once.
struct alignas(kLine) AbortRecord {
  std::atomic<AbortState> state;
  Fault fault;
  int culprit;
  std::uint64_t operation;  // the number it happened in, 0 where there is none
  std::size_t length;
  char text[1024];
};

enum class SegmentState : std::uint32_t { free, changing, live };

struct Segment {
  std::atomic<SegmentState> state;
  std::atomic<std::uint32_t> generation;  // grows whenever the entry changes
  std::atomic<std::uint64_t> offset;      // in the file
  std::atomic<std::uint64_t> bytes;
};

struct alignas(kLine) Header {
  std::uint64_t protocol;
  std::uint64_t members, piece, window;  // what the layout follows from
  std::atomic<std::uint64_t> end;        // of the file: where the next segment begins
  AbortRecord abort;
  Word called;  // 1 once a member has called
  Segment segments[kMaxSegments];
};

// Offsets in bytes from the start of the file. A group of one has no slots.
struct Layout {
  Layout(int members, std::size_t piece, int window)
      : ranks(round_up(sizeof(Header), kPage)),
        descriptors(ranks + members * sizeof(RankBlock)),
        shares(descriptors + members * kRing * sizeof(Descriptor)),
        small(round_up(shares + members * kRing * sizeof(Share), kPage)),
        staging(small + (members > 1 ? members * kRing * kSmallBytes : 0)),
        staging_of_rank(members > 1 ? round_up(members * piece * window, kPage) : 0),
        total(staging + members * staging_of_rank) {}
  std::size_t ranks, descriptors, shares, small, staging, staging_of_rank, total;
};

// Typed access to a mapped control block. Copies refer to the same memory.
class Control {
 public:
  Control(std::byte* base, int members, std::size_t piece, int window)
      : base_(base), members_(members), piece_(piece), window_(window), layout_(members, piece, window) {}

  int members() const { return members_; }
  std::size_t piece() const { return piece_; }
  std::uint64_t window() const { return static_cast<std::uint64_t>(window_); }
  const Layout& layout() const { return layout_; }
  std::byte* base() const { return base_; }

  Header& header() const { return *at<Header>(0); }
  RankBlock& rank(int rank) const { return at<RankBlock>(layout_.ranks)[rank]; }
  Descriptor& descriptor(std::uint64_t number, int rank) const {
    return at<Descriptor>(layout_.descriptors)[slot(number, rank)];
  }
  Share& share(std::uint64_t number, int rank) const { return at<Share>(layout_.shares)[slot(number, rank)]; }
  std::byte* small_slot(std::uint64_t number, int rank) const {
    return base_ + layout_.small + slot(number, rank) * kSmallBytes;
  }
  // The slots of one staged round, one piece for each member, one after the other.
  std::byte* staging_slots(std::uint64_t round, int rank) const {
    return base_ + layout_.staging + rank * layout_.staging_of_rank +
           (round % window()) * static_cast<std::size_t>(members_) * piece_;
  }

 private:
  std::size_t slot(std::uint64_t number, int rank) const {
    return (number % kRing) * static_cast<std::size_t>(members_) + static_cast<std::size_t>(rank);
  }
  template <typename T>
  T* at(std::size_t offset) const {
    return reinterpret_cast<T*>(base_ + offset);
  }

  std::byte* base_;
  int members_;
  std::size_t piece_;
  int window_;
  Layout layout_;
};

}  // namespace sumpter::exchange
