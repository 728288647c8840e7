#include "be/base/cpu_time.h"

#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

namespace be {
namespace {

Nanoseconds duration_of(const timeval& value) {
  return std::chrono::seconds(value.tv_sec) + std::chrono::microseconds(value.tv_usec);
}

// Field 15 of /proc/<pid>/stat (proc(5)), in clock ticks.
Result<uint64_t> system_ticks(pid_t pid) {
  const std::string path = fmt::format("/proc/{}/stat", pid);
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  // Field 2 is the program's name in parentheses and may hold anything, parentheses included.
  const size_t name_end = text.rfind(')');
  uint64_t ticks = 0;
  if (name_end == std::string::npos ||
      std::sscanf(text.c_str() + name_end + 1,
                  " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %" SCNu64, &ticks) != 1) {
    return error(Code::kNotFound, "{} cannot be read", path);
  }
  return ticks;
}

}  // namespace

CpuTime this_process_cpu_time() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return {duration_of(usage.ru_utime), duration_of(usage.ru_stime)};
}

Result<CpuTime> process_cpu_time(pid_t pid) {
  clockid_t clock;
  timespec total{};
  if (const int error_number = clock_getcpuclockid(pid, &clock); error_number != 0) {
    return error_from_errno(error_number, fmt::format("CPU time of process {}", pid));
  }
  // EINVAL: it ended meanwhile.
  if (clock_gettime(clock, &total) != 0) {
    return error(Code::kNotFound, "process {} has ended", pid);
  }
  BE_ASSIGN_OR_RETURN(const uint64_t ticks, system_ticks(pid));
  const Nanoseconds tick = Nanoseconds(std::chrono::seconds(1)) / sysconf(_SC_CLK_TCK);
  const Nanoseconds all = std::chrono::seconds(total.tv_sec) + Nanoseconds(total.tv_nsec);
  const Nanoseconds system = std::min(all, tick * static_cast<int64_t>(ticks));
  return CpuTime{all - system, system};
}

}  // namespace be
