#include "base/thread.h"

#include <pthread.h>
#include <sched.h>

#include <array>
#include <cerrno>
#include <thread>

#include "base/error.h"

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

std::vector<int> numbers_of_usable_cores() {
  std::vector<int> numbers;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return numbers;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) numbers.push_back(core);
  }
  return numbers;
}

void bind_this_thread(int core) {
  int error = EINVAL;
  if (core >= 0 && core < CPU_SETSIZE) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    error = pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
  }
  if (error != 0) raise<SystemError>("a thread cannot be bound to core {}: {}", core, errno_text(error));
}

bool run_as_batch() {
  const sched_param none{};
  return sched_setscheduler(0, SCHED_BATCH, &none) == 0;
}

}  // namespace sumpter
