// How this process's malloc treats the large blocks that training allocates and frees in every step.
#pragma once

namespace sumpter {

// From now on freed memory is kept for the next step instead of being given back to the system, whose page faults when
// it is had again cost up to a fifth of a step. For the whole process; doing it twice does nothing.
void keep_freed_memory();

}  // namespace sumpter
