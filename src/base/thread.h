// Threads of this process: their names, and how many cores they may use.
#pragma once

#include <string>

namespace sumpter {

// Names the calling thread for debuggers and profilers; the kernel keeps the first 15 characters.
void name_this_thread(const std::string& name);

// The name as the kernel has it; of a thread that was never named, its creator's.
std::string name_of_this_thread();

// Cores that this process may run on (its affinity mask), at least 1.
int usable_cores();

}  // namespace sumpter
