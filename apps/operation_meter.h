// What is measured of one kind of operation (Fetch or Push): latency, bytes, CPU time.
//
//   latency   from the call to its callback, successful operations only
//   bytes     of all frames to and from the servers, without headers below the parameter server
//   CPU       user and system time of this process and of all servers, over stretches in which
//             nothing but these operations was done, divided by the number done there
//
// One thread.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>

#include "be/base/cpu_time.h"
#include "be/base/histogram.h"
#include "be/base/time.h"

namespace be::apps {

class OperationMeter {
 public:
  void record(Nanoseconds latency, size_t bytes) {
    latency_ns_.record(static_cast<uint64_t>(latency.count()));
    bytes_ += bytes;
  }
  void add_cpu(const CpuTime& spent, size_t operations) {
    cpu_ = cpu_ + spent;
    cpu_operations_ += operations;
  }

  uint64_t count() const { return latency_ns_.count(); }

  // {count, mean_us, p50_us, p99_us, max_us, bytes_per_op} and, if CPU time was added,
  // {cpu_us_per_op, cpu_user_us_per_op, cpu_system_us_per_op}.
  nlohmann::json figures() const;

 private:
  Histogram latency_ns_;
  uint64_t bytes_ = 0;
  CpuTime cpu_;
  uint64_t cpu_operations_ = 0;
};

}  // namespace be::apps
