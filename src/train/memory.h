// Memory of training: how this process's malloc treats the large blocks that each step allocates and frees, and how
// many bytes of tensors a thread holds. Free of torch.
#pragma once

#include <cstddef>
#include <memory>

namespace sumpter {

// From now on freed memory is kept for the next step instead of being given back to the system, whose page faults when
// it is had again cost up to a fifth of a step. For the whole process; doing it twice does nothing.
void keep_freed_memory();

// While it lives, counts the bytes that torch allocates for tensors on the CPU in the thread that made it, where the
// backward pass runs too. What was allocated before, or by another thread, is not counted, and freeing it changes
// nothing; what another thread frees counts until its address is used again. It takes the place of torch's profiler in
// this thread, and torch warns on standard error, now and then, of memory freed that was had before. Made and destroyed
// by one thread; of several, the last one made counts, and is destroyed first.
class MemoryWatch {
 public:
  MemoryWatch();
  ~MemoryWatch();
  MemoryWatch(const MemoryWatch&) = delete;
  MemoryWatch& operator=(const MemoryWatch&) = delete;

  std::size_t now() const;   // bytes
  std::size_t peak() const;  // bytes: the most that now() has been

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sumpter
