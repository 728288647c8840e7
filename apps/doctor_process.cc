#include "apps/doctor_process.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "be/base/units.h"

namespace be::apps::doctor {
namespace {

constexpr uint64_t kHugePage = uint64_t{2} << 20;
constexpr uint64_t kLeastCap = uint64_t{1} << 20;
constexpr std::pair kCollapseSince = {6, 1};  // MADV_COLLAPSE
constexpr std::pair kCopyAtFork = {5, 12};    // of pinned private pages

// "[never]" of "always within_size advise [never] deny force".
std::string chosen_of(const std::string& line) {
  const size_t begin = line.find('[');
  const size_t end = line.find(']');
  if (begin == std::string::npos || end == std::string::npos || end < begin) return line;
  return line.substr(begin + 1, end - begin - 1);
}

Finding reserved_pages(const Files& files, uint64_t cap_bytes) {
  const std::string folder = "/sys/kernel/mm/hugepages/hugepages-2048kB/";
  const uint64_t total = files.number(folder + "nr_hugepages").value_or(0);
  const uint64_t free = files.number(folder + "free_hugepages").value_or(0);
  const uint64_t wanted = (cap_bytes + kHugePage - 1) / kHugePage;
  Finding finding{"huge pages", Verdict::kOk,
                  fmt::format("reserved: {} of {} are free; memory.cap_bytes may need {}", free,
                              total, wanted)};
  if (free >= wanted) return finding;
  finding.verdict = free == 0 ? Verdict::kMissing : Verdict::kWarning;
  finding.remedy = fmt::format("sysctl vm.nr_hugepages={}", total - free + wanted);
  return finding;
}

}  // namespace

Finding check_memlock(const hardware::Memlock& memlock, uint64_t cap_bytes, size_t devices,
                      bool container) {
  const uint64_t pinned = cap_bytes * std::max<size_t>(devices, 1);
  Finding finding{"memory lock", Verdict::kOk, hardware::to_string(memlock)};
  if (check_memlock(memlock, pinned).ok()) return finding;
  finding.text += fmt::format("; memory.cap_bytes lets us pin {}", format_bytes(pinned));
  if (devices > 1) finding.text += fmt::format(" ({} devices pin each page)", devices);
  finding.verdict = devices == 0 ? Verdict::kSkipped : Verdict::kMissing;
  if (devices == 0) finding.text += ", but only RDMA devices pin memory";
  finding.remedy = container
                       ? "start the container with --ulimit memlock=-1 or --cap-add IPC_LOCK"
                       : "ulimit -l unlimited (as root; to stay: \"* - memlock unlimited\" in "
                         "/etc/security/limits.conf, systemd: LimitMEMLOCK=infinity)";
  const uint64_t fits = memlock.limit_bytes / std::max<size_t>(devices, 1) / kLeastCap * kLeastCap;
  if (fits >= kLeastCap) {
    finding.remedy += fmt::format(", or --set memory.cap_bytes={}", format_bytes(fits));
  }
  return finding;
}

Finding check_huge_pages(const Files& files, HugePages wanted, uint64_t cap_bytes) {
  Finding finding{"huge pages", Verdict::kOk, ""};
  if (wanted == HugePages::kReserved) return reserved_pages(files, cap_bytes);
  if (wanted == HugePages::kOff) {
    finding.verdict = Verdict::kSkipped;
    finding.text = "memory.huge_pages is off";
    return finding;
  }
  const char* setting = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
  const auto line = files.line(setting);
  finding.verdict = Verdict::kWarning;
  if (!line) {
    finding.text = "this kernel has no transparent huge pages: registered memory has small ones";
    finding.remedy = "sysctl vm.nr_hugepages=N and --set memory.huge_pages=reserved";
  } else if (chosen_of(*line) == "deny") {
    finding.text = "shared memory gets none (shmem_enabled is deny)";
    finding.remedy = fmt::format("echo never > {} (then they are had where asked for)", setting);
  } else if (kernel_version(files) < kCollapseSince) {
    finding.text = "only kernels from 6.1 on give them to registered memory when asked";
    finding.remedy = fmt::format("echo always > {}", setting);
    if (chosen_of(*line) == "always" || chosen_of(*line) == "force") {
      return {"huge pages", Verdict::kOk, "transparent: shmem_enabled is " + chosen_of(*line)};
    }
  } else {
    finding.verdict = Verdict::kOk;
    finding.text = "transparent: registered memory asks for them";
  }
  return finding;
}

Finding check_fork(const Files& files) {
  Finding finding{"fork", Verdict::kOk,
                  "registered memory is shared, so fork() copies none of it on write"};
  if (kernel_version(files) >= kCopyAtFork) return finding;
  finding.verdict = Verdict::kWarning;
  finding.text += "; adopted memory is, before kernel 5.12";
  finding.remedy = "a newer kernel, or in a process that adopts memory: RDMAV_FORK_SAFE=1";
  return finding;
}

}  // namespace be::apps::doctor
