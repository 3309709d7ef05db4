// The shared memory of a group: one anonymous file that holds the control block, the slots, and segments that members
// append for memory that they hand out. It lives for as long as somebody maps it or has it open.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/file.h"
#include "exchange/control.h"
#include "sumpter/exchange.h"

namespace sumpter::exchange {

// Owns a mapping.
class Mapping {
 public:
  Mapping() = default;
  // Maps bytes of the file, shared, readable and writable, with its pages present. Throws SystemError.
  Mapping(int file, std::uint64_t offset, std::size_t bytes, bool populate);
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Mapping();
  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  bool contains(const void* begin, std::size_t bytes) const;
  // Puts private memory with the same contents in its place, so that nobody else can write there any more.
  void make_private();

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

class Arena {
 public:
  // Throws SystemError.
  static Arena create(const GroupOptions& options);
  // Of a file that another process made with these options.
  Arena(FileDescriptor file, const GroupOptions& options);

  int file() const { return file_.get(); }
  const Control& control() const { return control_; }
  // Makes sure that the rank's slots for staging have memory behind them. Throws SystemError.
  void reserve_staging(int rank) const;
  // Makes sure that the range of the file has memory behind it, so that touching it cannot fail. Throws SystemError.
  void reserve(std::uint64_t offset, std::size_t bytes) const;
  // Gives the memory of a range back, even where it is still mapped; false when the system refuses.
  bool punch(std::uint64_t offset, std::size_t bytes) const;
  // Of the file that have memory behind them.
  std::size_t held_bytes() const;

 private:
  FileDescriptor file_;
  Mapping base_;
  Control control_;
};

// Where data lies, in one word of a descriptor: a segment's number plus one, and the offset in it.
using Place = std::uint64_t;
inline constexpr Place kPrivate = 0;                  // where others cannot read
inline constexpr Place kNowhere = ~std::uint64_t{0};  // there is no data

// One member's view of the segments: those that it made, and those of others that it has mapped. Any thread may call.
class Segments {
 public:
  explicit Segments(const Arena& arena) : arena_(arena) {}
  Segments(const Segments&) = delete;
  Segments& operator=(const Segments&) = delete;
  ~Segments();

  // Appends a zeroed segment. Throws SystemError when memory or the table is exhausted.
  void* allocate(std::size_t bytes);
  void release(void* data) noexcept;
  // The place of memory that this member allocated; kPrivate for any other.
  Place find(const void* data, std::size_t bytes) const;
  // The address of another member's place, mapped now if need be; null when the segment is already gone, which means
  // that the operation that named it is over. Throws SystemError when it cannot be mapped.
  std::byte* resolve(Place place);
  // What this member allocated becomes private: for when somebody who might still write to it cannot be asked to stop.
  void disown();

 private:
  struct Owned {
    std::size_t segment;
    Mapping mapping;
  };
  struct Peer {
    std::size_t segment;
    std::uint32_t generation;
    Mapping mapping;
  };
  void free_entry(std::size_t segment) noexcept;

  const Arena& arena_;
  mutable std::mutex mutex_;
  std::vector<Owned> owned_;
  std::vector<Peer> peers_;
};

}  // namespace sumpter::exchange
