// CPU seconds of the calling thread so far. Wall time summed over threads means nothing when there
// are more threads than cores.
#pragma once

#include <ctime>

namespace be::bench {

inline double thread_cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

}  // namespace be::bench
