// How long threads were ready to run and had no core (schedstat of /proc): what a bound on time
// must forgive on a machine that others use as well.
//
// A thread's share is counted when it gets its core: of one that has just answered, all is known.
#pragma once

#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "be/base/time.h"
#include "be/base/unique_fd.h"

namespace be::cluster {

class RunQueueDelay {
 public:
  // Watches the threads that the process has now, and those of more processes later on.
  void watch(pid_t pid) {
    std::error_code gone;
    for (const auto& task :
         std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task", gone)) {
      const std::string path = task.path().string() + "/schedstat";
      UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
      if (fd.valid()) files_.push_back(std::move(fd));
    }
  }

  // In all so far; compare two readings.
  Nanoseconds so_far() const {
    int64_t sum = 0;
    for (const UniqueFd& file : files_) {
      char text[128] = {};
      if (::pread(file.get(), text, sizeof(text) - 1, 0) <= 0) continue;
      int64_t ran = 0;
      int64_t waited = 0;
      if (std::sscanf(text, "%" SCNd64 " %" SCNd64, &ran, &waited) == 2) sum += waited;
    }
    return Nanoseconds(sum);
  }

 private:
  std::vector<UniqueFd> files_;
};

}  // namespace be::cluster
