// How much memory this process may register: registered memory is pinned, and RLIMIT_MEMLOCK
// bounds what is pinned, counted once for each device.
//
// A device is taken only if all that the process may ever register fits: a limit that is met in
// the middle of work would leave neither memory for RDMA nor for TCP. Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "be/base/status.h"

namespace be::hardware {

struct Memlock {
  uint64_t limit_bytes = 0;  // UINT64_MAX: unlimited
  bool exempt = false;       // CAP_IPC_LOCK, as root of the host and not of a rootless container
};

Memlock memlock_of_this_process();

// Pure. The failure says what can be done.
Status check_memlock(const Memlock& memlock, uint64_t registered_bytes);

// "RLIMIT_MEMLOCK is 8388608 bytes", "... unlimited", "... 65536 bytes, but we are exempt".
std::string to_string(const Memlock& memlock);

}  // namespace be::hardware
