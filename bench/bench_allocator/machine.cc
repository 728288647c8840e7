#include "bench/bench_allocator/machine.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <gnu/libc-version.h>
#include <sys/utsname.h>

#include <ctime>
#include <fstream>
#include <thread>

namespace be::bench {
namespace {

std::string name_of_cpu() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return "an unnamed CPU";
}

}  // namespace

std::string Machine::to_string() const {
  return fmt::format("{} cores of {}, {}, {}, {} UTC", cores, cpu, kernel, libc, date);
}

void to_json(nlohmann::json& json, const Machine& machine) {
  json = {{"cpu", machine.cpu},
          {"cores", machine.cores},
          {"kernel", machine.kernel},
          {"libc", machine.libc},
          {"date_utc", machine.date}};
}

Machine this_machine() {
  utsname names{};
  uname(&names);
  return {.cpu = name_of_cpu(),
          .cores = static_cast<int>(std::thread::hardware_concurrency()),
          .kernel = fmt::format("{} {}", names.sysname, names.release),
          .libc = fmt::format("glibc {}", gnu_get_libc_version()),
          .date = fmt::format("{:%Y-%m-%d %H:%M}", fmt::gmtime(std::time(nullptr)))};
}

}  // namespace be::bench
