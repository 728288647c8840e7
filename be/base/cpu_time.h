// CPU time of a process, user and system apart: what an operation costs the host.
//
//   const CpuTime before = this_process_cpu_time();
//   ... operations ...
//   const CpuTime spent = this_process_cpu_time() - before;
//
// All threads, living and ended. Any thread may ask.
#pragma once

#include <sys/types.h>

#include "be/base/status.h"
#include "be/base/time.h"

namespace be {

struct CpuTime {
  Nanoseconds user{0};
  Nanoseconds system{0};

  Nanoseconds total() const { return user + system; }
};

constexpr CpuTime operator-(const CpuTime& later, const CpuTime& earlier) {
  return {later.user - earlier.user, later.system - earlier.system};
}
constexpr CpuTime operator+(const CpuTime& a, const CpuTime& b) {
  return {a.user + b.user, a.system + b.system};
}

// To the microsecond (getrusage).
CpuTime this_process_cpu_time();

// Of any process of this host. The total is exact; the kernel tells of others only in clock ticks
// (10 ms) how much of it is system time. kNotFound: there is no such process.
Result<CpuTime> process_cpu_time(pid_t pid);

}  // namespace be
