// One allocator in one cell of Figure 4, once.
#include <dlfcn.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "be/base/cpu_time.h"
#include "be/base/world.h"
#include "bench/bench_allocator/jobs.h"
#include "bench/bench_allocator/subject.h"

namespace be::bench {
namespace {

double seconds(Nanoseconds duration) { return static_cast<double>(duration.count()) * 1e-9; }

// Of this process since it began: shared memory (the pool's memfd) counts as any other.
size_t peak_rss_bytes() {
  std::ifstream file("/proc/self/status");
  const std::string field = "VmHWM:";
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(field, 0) == 0) return std::stoul(line.substr(field.size())) << 10;
  }
  return 0;
}

// The library that malloc comes from: the proof that LD_PRELOAD was heard.
std::string library_of_malloc() {
  Dl_info info{};
  dladdr(dlsym(RTLD_DEFAULT, "malloc"), &info);
  return info.dli_fname == nullptr ? "" : info.dli_fname;
}

}  // namespace

Result<nlohmann::json> do_cell(const nlohmann::json& job) {
  Workload workload = workload_of(job);
  workload.loops = job.at("loops");
  const int threads = job.at("threads");
  BE_ASSIGN_OR_RETURN(const std::unique_ptr<Subject> subject, Subject::create(job.at("allocator")));

  const size_t rss_before = peak_rss_bytes();
  const CpuTime cpu_before = this_process_cpu_time();
  const Time start = kernel_world().now();
  const WorkloadResult done = run_workload(workload, threads, *subject);
  const Time end = kernel_world().now();
  const CpuTime cpu = this_process_cpu_time() - cpu_before;

  nlohmann::json result = {
      {"operations", done.operations},
      {"thread_cpu_seconds", done.cpu_seconds},
      {"process_cpu_seconds", seconds(cpu.total())},
      {"seconds", seconds(end - start)},
      {"peak_rss_bytes", peak_rss_bytes()},
      {"rss_before_bytes", rss_before},
      {"library", library_of_malloc()},
  };
  if (RegisteredPool* pool = subject->registered(); pool != nullptr) {
    const PoolStats stats = pool->stats();
    result["peak_registered_bytes"] = stats.peak_registered_bytes;
    result["registrations"] = stats.registrations;
    result["deregistrations"] = stats.deregistrations;
  }
  return result;
}

}  // namespace be::bench
