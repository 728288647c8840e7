// What a RegisteredPool is made with.
#pragma once

#include <cstddef>
#include <cstdint>

namespace be {

// Pages of registered memory (memory/reserved_range.h).
enum class HugePages : uint8_t {
  kOff,
  kTransparent,  // where the kernel gives them: never an error
  kReserved,     // only from vm.nr_hugepages; block_bytes must be a multiple of 2 MiB
};

// For debugging: every misuse of memory is named in the log (memory/guard.h). Slow.
enum class GuardMode : uint8_t {
  kOff,
  kReport,  // and counted in PoolStats
  kAbort,   // for a core dump at once
};

struct PoolOptions {
  size_t block_bytes = size_t{4} << 20;  // power of two, >= 64 KiB
  size_t cap_bytes = 0;                  // 0: a quarter of RAM
  // Empty blocks are kept registered up to this; more is given back once it has not been needed
  // from one release_unused() to the next.
  size_t kept_bytes = size_t{64} << 20;
  HugePages huge_pages = HugePages::kTransparent;

  GuardMode guard = GuardMode::kOff;
};

}  // namespace be
