// What is measured of our pool alone, each in fresh processes: the region lookup, the producer and
// the consumer, the bookkeeping. JSON as the report has it (bars.h reads it). One thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "be/base/status.h"

namespace be::bench {

Result<nlohmann::json> measure_lookup();

// One thread allocates and another frees for `seconds`; before and after that, one thread does both
// for a sixth of the time each: their mean is the same-thread rate.
Result<nlohmann::json> measure_producer_consumer(const std::string& workload, double seconds);

// Instructions of one operation with a device open and without, counted by callgrind: of two runs
// of different length, the difference of their counts over that of their operations.
Result<nlohmann::json> measure_bookkeeping(const std::string& workload);
bool have_valgrind();

}  // namespace be::bench
