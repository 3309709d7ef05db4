#include "exchange/arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/log.h"

namespace sumpter::exchange {
namespace {

constexpr unsigned kOffsetBits = 48;
constexpr std::uint64_t kOffsetMask = (std::uint64_t{1} << kOffsetBits) - 1;
constexpr std::uint64_t kLargestFile = std::uint64_t{1} << 62;  // bytes
constexpr int kFirstFreeDescriptor = 3;

// What the kernel believes it can still hand out, or nothing where it does not say.
std::optional<std::size_t> available_memory() {
  std::ifstream info("/proc/meminfo");
  std::string key, unit;
  std::size_t kib = 0;
  while (info >> key >> kib) {
    if (key == "MemAvailable:") return kib * kKiB;
    std::getline(info, unit);
  }
  return std::nullopt;
}

// Asking for more than there is would have the kernel look for a process to kill before it says no.
void require_available(std::size_t bytes) {
  const auto available = available_memory();
  if (available && bytes > *available) {
    raise<SystemError>("{} of arena memory were asked for, {} are available",
                       describe_bytes(static_cast<double>(bytes)), describe_bytes(static_cast<double>(*available)));
  }
}

// A stretch of the file that nobody else has: offsets are never used twice. The file is sparse, and a late writer
// cannot meet a new owner.
std::uint64_t take_offset(std::atomic<std::uint64_t>& end, std::size_t size) {
  std::uint64_t offset = end.load();
  do {
    if (size > kLargestFile - offset) {
      raise<SystemError>("the arena's file cannot grow by {}", describe_bytes(static_cast<double>(size)));
    }
  } while (!end.compare_exchange_weak(offset, offset + size));
  return offset;
}

}  // namespace

Mapping::Mapping(int file, std::uint64_t offset, std::size_t bytes, bool populate) : bytes_(bytes) {
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | (populate ? MAP_POPULATE : 0), file,
                    static_cast<off_t>(offset));
  if (data == MAP_FAILED) {
    raise<SystemError>("mapping {} of the arena failed: {}; fewer or larger allocations may help",
                       describe_bytes(static_cast<double>(bytes)), errno_text());
  }
  data_ = static_cast<std::byte*>(data);
}

Mapping::~Mapping() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

bool Mapping::contains(const void* begin, std::size_t bytes) const {
  const auto* from = static_cast<const std::byte*>(begin);
  return from >= data_ && from < data_ + bytes_ && bytes <= static_cast<std::size_t>(data_ + bytes_ - from);
}

void Mapping::make_private() {
  void* copy = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (copy == MAP_FAILED) {
    raise<SystemError>("a private copy of {} cannot be had: {}", describe_bytes(static_cast<double>(bytes_)),
                       errno_text());
  }
  std::memcpy(copy, data_, bytes_);
  if (mremap(copy, bytes_, bytes_, MREMAP_MAYMOVE | MREMAP_FIXED, data_) == MAP_FAILED) {
    const int error = errno;
    munmap(copy, bytes_);
    raise<SystemError>("arena memory cannot be replaced by a private copy: {}", errno_text(error));
  }
}

Arena Arena::create(const GroupOptions& options) {
  const FileDescriptor made(memfd_create("sumpter-arena", MFD_CLOEXEC));
  if (!made.is_open()) raise<SystemError>("the arena's anonymous file cannot be made: {}", errno_text());
  // Not the number of a standard stream that somebody has closed: what is printed there would land in the arena.
  FileDescriptor file(fcntl(made.get(), F_DUPFD_CLOEXEC, kFirstFreeDescriptor));
  if (!file.is_open()) raise<SystemError>("the arena's anonymous file cannot be kept: {}", errno_text());
  const Layout layout(options.members, options.piece, options.window);
  if (ftruncate(file.get(), static_cast<off_t>(layout.total)) != 0) {
    raise<SystemError>("the arena cannot be given {}: {}; a smaller piece, window or group needs less",
                       describe_bytes(static_cast<double>(layout.total)), errno_text());
  }
  Arena arena(std::move(file), options);
  require_available(layout.staging);
  arena.reserve(0, layout.staging);
  Header& header = arena.control().header();
  header.protocol = kProtocol;
  header.members = static_cast<std::uint64_t>(options.members);
  header.piece = options.piece;
  header.window = static_cast<std::uint64_t>(options.window);
  header.end.store(layout.total);
  return arena;
}

Arena::Arena(FileDescriptor file, const GroupOptions& options)
    : file_(std::move(file)),
      base_(file_.get(), 0, Layout(options.members, options.piece, options.window).total, false),
      control_(base_.data(), options.members, options.piece, options.window) {}

void Arena::reserve(std::uint64_t offset, std::size_t bytes) const {
  if (bytes == 0) return;
  int result = 0;
  do {
    result = fallocate(file_.get(), 0, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  } while (result != 0 && errno == EINTR);
  if (result != 0) {
    raise<SystemError>("{} of arena memory cannot be had: {}", describe_bytes(static_cast<double>(bytes)),
                       errno_text());
  }
}

bool Arena::punch(std::uint64_t offset, std::size_t bytes) const {
  return fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                   static_cast<off_t>(bytes)) == 0;
}

std::size_t Arena::held_bytes() const {
  constexpr std::size_t kBlockBytes = 512;  // the unit of st_blocks
  struct stat status {};
  return fstat(file_.get(), &status) == 0 ? static_cast<std::size_t>(status.st_blocks) * kBlockBytes : 0;
}

void Arena::reserve_staging(int rank) const {
  const Layout& layout = control_.layout();
  require_available(layout.staging_of_rank);
  reserve(layout.staging + rank * layout.staging_of_rank, layout.staging_of_rank);
}

Segments::~Segments() {
  for (const Owned& owned : owned_) free_entry(owned.segment);
}

void* Segments::allocate(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  const std::size_t size = round_up(bytes, kPage);
  if (size < bytes) raise<SystemError>("{} bytes of arena memory are more than an address can reach", bytes);
  require_available(size);
  Header& header = arena_.control().header();
  const auto entry = std::find_if(std::begin(header.segments), std::end(header.segments), [](Segment& candidate) {
    SegmentState expected = SegmentState::free;
    return candidate.state.compare_exchange_strong(expected, SegmentState::changing);
  });
  if (entry == std::end(header.segments)) {
    raise<SystemError>("all {} arena segments of the group are in use; allocate fewer and larger ones", kMaxSegments);
  }
  std::optional<std::uint64_t> reserved;
  try {
    const std::uint64_t offset = take_offset(header.end, size);
    arena_.reserve(offset, size);
    reserved = offset;
    Mapping mapping(arena_.file(), offset, size, true);
    void* const data = mapping.data();
    {
      const std::lock_guard lock(mutex_);
      owned_.push_back({static_cast<std::size_t>(entry - header.segments), std::move(mapping)});
    }
    entry->offset.store(offset);
    entry->bytes.store(size);
    entry->generation.fetch_add(1);
    entry->state.store(SegmentState::live);
    return data;
  } catch (...) {
    if (reserved) arena_.punch(*reserved, size);
    entry->state.store(SegmentState::free);
    throw;
  }
}

void Segments::release(void* data) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found =
      std::find_if(owned_.begin(), owned_.end(), [data](const Owned& owned) { return owned.mapping.data() == data; });
  if (found == owned_.end()) return;
  free_entry(found->segment);
  owned_.erase(found);
}

void Segments::free_entry(std::size_t segment) noexcept {
  Segment& entry = arena_.control().header().segments[segment];
  entry.state.store(SegmentState::changing);
  entry.generation.fetch_add(1);
  if (!arena_.punch(entry.offset.load(), entry.bytes.load())) {
    log::warning("{} of arena memory cannot be given back before the group ends: {}",
                 describe_bytes(static_cast<double>(entry.bytes.load())), errno_text());
  }
  entry.state.store(SegmentState::free);
}

Place Segments::find(const void* data, std::size_t bytes) const {
  const std::lock_guard lock(mutex_);
  for (const Owned& owned : owned_) {
    if (!owned.mapping.contains(data, bytes)) continue;
    const auto offset = static_cast<std::uint64_t>(static_cast<const std::byte*>(data) - owned.mapping.data());
    return (static_cast<std::uint64_t>(owned.segment) + 1) << kOffsetBits | offset;
  }
  return kPrivate;
}

std::byte* Segments::resolve(Place place) {
  const std::size_t segment = (place >> kOffsetBits) - 1;
  const std::uint64_t offset = place & kOffsetMask;
  Segment& entry = arena_.control().header().segments[segment];
  const std::uint32_t generation = entry.generation.load();
  const std::lock_guard lock(mutex_);
  const auto own =
      std::find_if(owned_.begin(), owned_.end(), [&](const Owned& owned) { return owned.segment == segment; });
  if (own != owned_.end()) return own->mapping.data() + offset;
  auto peer = std::find_if(peers_.begin(), peers_.end(), [&](const Peer& known) { return known.segment == segment; });
  if (peer != peers_.end() && peer->generation == generation) return peer->mapping.data() + offset;
  if (peer != peers_.end()) peers_.erase(peer);
  const std::uint64_t start = entry.offset.load();
  const std::size_t bytes = entry.bytes.load();
  // A segment that is freed while we look belongs to an operation that has ended without us.
  if (entry.state.load() != SegmentState::live || entry.generation.load() != generation || offset >= bytes)
    return nullptr;
  Mapping mapping(arena_.file(), start, bytes, true);
  if (entry.generation.load() != generation) {
    arena_.punch(start, bytes);  // mapping it has brought pages back that its owner had given away
    return nullptr;
  }
  peers_.push_back({segment, generation, std::move(mapping)});
  return peers_.back().mapping.data() + offset;
}

void Segments::disown() {
  const std::lock_guard lock(mutex_);
  for (Owned& owned : owned_) owned.mapping.make_private();
}

}  // namespace sumpter::exchange
