#include "train/memory.h"

#include <malloc.h>

#include <limits>

namespace sumpter {

void keep_freed_memory() {
  // Only the main arena holds blocks of any size: those of other threads end at 64 MiB.
  mallopt(M_ARENA_MAX, 1);
  mallopt(M_MMAP_THRESHOLD, std::numeric_limits<int>::max());
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
}

}  // namespace sumpter
