// Threads of this process: their names, and the cores that they may use.
#pragma once

#include <string>
#include <vector>

namespace sumpter {

// Names the calling thread for debuggers and profilers; the kernel keeps the first 15 characters.
void name_this_thread(const std::string& name);

// The name as the kernel has it; of a thread that was never named, its creator's.
std::string name_of_this_thread();

// Cores that this process may run on (its affinity mask), at least 1.
int usable_cores();

// Their numbers, ascending, as far as the system tells: the first 1024.
std::vector<int> numbers_of_usable_cores();

// Has the calling thread run on this core only. Throws SystemError when the system refuses.
void bind_this_thread(int core);

// Has the calling thread wake without displacing one that computes on its core (SCHED_BATCH); it gets its share all the
// same. Needs no privilege. False when the system refuses.
bool run_as_batch();

}  // namespace sumpter
