#include "be/verbs/hardware/memlock.h"

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>

namespace be::hardware {
namespace {

// The kernel asks for the capability in the initial user namespace, that is of root outside of a
// rootless container. There all ids are mapped to themselves.
bool in_initial_user_namespace() {
  std::ifstream map("/proc/self/uid_map");
  if (!map.is_open()) return true;  // a kernel without them
  uint64_t inside = 0;
  uint64_t outside = 0;
  uint64_t count = 0;
  map >> inside >> outside >> count;
  return !map.fail() && inside == 0 && outside == 0 && count == UINT32_MAX;
}

bool has_cap_ipc_lock() {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};
  if (::syscall(SYS_capget, &header, data) != 0) return false;
  return (data[CAP_TO_INDEX(CAP_IPC_LOCK)].effective & CAP_TO_MASK(CAP_IPC_LOCK)) != 0;
}

}  // namespace

Memlock memlock_of_this_process() {
  rlimit limit{};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  return {.limit_bytes = limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : limit.rlim_cur,
          .exempt = has_cap_ipc_lock() && in_initial_user_namespace()};
}

Status check_memlock(const Memlock& memlock, uint64_t registered_bytes) {
  if (memlock.exempt || registered_bytes <= memlock.limit_bytes) return ok_status();
  return error(
      Code::kResourceExhausted,
      "{} bytes may be registered, but {}: raise it (ulimit -l, systemd's LimitMEMLOCK) or "
      "lower memory.cap_bytes",
      registered_bytes, to_string(memlock));
}

std::string to_string(const Memlock& memlock) {
  if (memlock.limit_bytes == UINT64_MAX) return "RLIMIT_MEMLOCK is unlimited";
  return fmt::format("RLIMIT_MEMLOCK is {} bytes{}", memlock.limit_bytes,
                     memlock.exempt ? ", but we are exempt" : "");
}

}  // namespace be::hardware
