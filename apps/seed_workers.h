// Runs seeds of the simulation in worker processes: what crashes, hangs or breaks an invariant
// takes only its worker with it, and is reported with its seed.
//
//   worker w of n runs seeds first + w, first + w + n, ... and reports each over a pipe
//
// Forks, so it is used before the process has threads.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "be/base/status.h"

namespace be::apps {

struct SeedRange {
  uint64_t first = 1;
  uint64_t count = 1;
  unsigned jobs = 1;
  uint64_t twice_one_in = 16;  // so many are run twice, and must have the same trace; 0: none
};

struct SeedTotals {
  uint64_t seeds = 0;
  uint64_t happenings = 0;
  double virtual_seconds = 0;
  uint64_t hash = 0;  // of all traces: equal for equal ranges, on every machine
};

// The first failure that is heard of: which seed, and its whole report.
struct SeedFailure {
  uint64_t seed = 0;
  std::string report;  // ends with a line feed
};

// `progress` is told now and then. A failed seed is no error: it is in `failure` (seed 0: none).
Status run_seeds(const SeedRange& range, SeedTotals& totals, SeedFailure& failure,
                 const std::function<void(const SeedTotals&)>& progress);

}  // namespace be::apps
