// What a RegisteredPool tells of itself.
//
// Added up from counters that move meanwhile, so a snapshot can be off by what other threads are
// just doing; exact when they are quiet.
#pragma once

#include <cstddef>
#include <cstdint>

namespace be {

struct PoolStats {
  size_t registered_bytes = 0;  // live + cached
  size_t live_bytes = 0;        // handed out, as usable_size; adopted memory included
  size_t cached_bytes = 0;      // ours to hand out
  size_t peak_registered_bytes = 0;
  size_t cap_bytes = 0;
  uint64_t allocations = 0;  // alive
  uint64_t registrations = 0;
  uint64_t deregistrations = 0;
  uint64_t guard_faults = 0;  // guard mode: misuses that were found
};

// Of one size that small allocations are rounded up to.
struct SizeClassStats {
  size_t object_bytes = 0;
  uint64_t live_objects = 0;
  uint64_t cached_objects = 0;  // in threads' caches
  size_t span_bytes = 0;        // of pages that this class occupies
};

}  // namespace be
