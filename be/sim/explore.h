// One seed, from its draws to its verdict (`byteexpress sim`).
//
// A run is over when all work is over and everything has been torn down, or at the first
// violation: of an invariant of blueprint 6 after any step, of the shadow model, of liveness (the
// faults are over and the work does not end within a bound), of conservation at the end.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "be/base/time.h"

namespace be::sim {

struct Outcome {
  uint64_t seed = 0;
  std::string violation;  // empty: none
  uint64_t hash = 0;      // of the trace
  uint64_t happenings = 0;
  Nanoseconds virtual_time{};
  std::string knobs;
  std::vector<std::string> last;  // of the trace
};

// A violation is told to `violated`, which must not return: what has broken its invariants cannot
// be torn down. What the code under test logs as an error is a violation too.
Outcome run_seed(uint64_t seed, const std::function<void(const Outcome&)>& violated);

}  // namespace be::sim
