// The figures of `byteexpress perf`: what one repetition of one size counted, what follows from it,
// and the median over the repetitions.
//
//   messages/s = answered / seconds         seconds: from the first message to the last reply
//   bytes/s    = answered * size / seconds  requests only
//   CPU        user + system of the whole process, at either end, in the same stretch
//
// Pure. The median is taken of each figure by itself.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "be/base/cpu_time.h"
#include "be/base/histogram.h"

namespace be::apps {

struct PerfSample {
  uint32_t bytes = 0;  // of a message
  uint64_t answered = 0;
  Nanoseconds elapsed{0};
  Histogram times_ns;
  CpuTime client_cpu;
  CpuTime server_cpu;
  uint64_t background_bytes = 0;  // that large flows beside moved meanwhile
};

struct PerfFigures {
  double messages = 0;
  double seconds = 0;
  double mean_us = 0;
  double p50_us = 0;
  double p99_us = 0;
  double max_us = 0;
  double messages_per_second = 0;
  double gigabytes_per_second = 0;  // 10^9
  double client_cpu_us_per_message = 0;
  double server_cpu_us_per_message = 0;
  double system_cpu_share = 0;          // of both ends' CPU time
  double cpu_seconds_per_gigabyte = 0;  // both ends, all bytes: those of the background too
  double background_gigabytes_per_second = 0;
};

PerfFigures figures_of(const PerfSample& sample);  // requires answered > 0 and elapsed > 0
PerfFigures median_of(const std::vector<PerfFigures>& repetitions);  // requires one at least
nlohmann::ordered_json to_json(const PerfFigures& figures);

}  // namespace be::apps
