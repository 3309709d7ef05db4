#include "base/thread.h"

#include <pthread.h>
#include <sched.h>

#include <array>
#include <thread>

namespace sumpter {

void name_this_thread(const std::string& name) { pthread_setname_np(pthread_self(), name.substr(0, 15).c_str()); }

std::string name_of_this_thread() {
  std::array<char, 16> name{};  // the kernel's size, the zero included
  pthread_getname_np(pthread_self(), name.data(), name.size());
  return name.data();
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
  const unsigned all = std::thread::hardware_concurrency();  // more cores than cpu_set_t holds
  return all == 0 ? 1 : static_cast<int>(all);
}

}  // namespace sumpter
