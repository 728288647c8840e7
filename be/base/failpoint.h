// Failpoints: named places between two steps where a test stops or kills this very process.
//
//   BE_FAILPOINT("softnic.post.published");
//
//   armed(name, n, action):   the n-th time the process comes by `name`, it sends itself SIGSTOP
//                             (and goes on from there when it is continued) or SIGKILL
//
// Compiled in where the CMake option BE_FAILPOINTS is on (presets debug, asan, tsan); else the
// macro is nothing and the hot path has nothing of it. A name that is not in failpoint_names.h
// does not compile. One failpoint is armed at a time; arming begins to count anew. A process is
// armed from within, by the test program that it runs.
//
// Any thread. Cannot fail.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "be/base/failpoint_names.h"

#ifdef BE_FAILPOINTS

namespace be::failpoint {

inline constexpr bool kCompiledIn = true;

enum class Action : uint8_t { kStop, kKill };

void arm(std::string_view name, uint32_t hit, Action action);  // requires a name of kNames
void disarm();
bool armed();  // and not reached yet

void reach(size_t index);

}  // namespace be::failpoint

#define BE_FAILPOINT(name)                                                    \
  do {                                                                        \
    constexpr size_t be_failpoint = ::be::failpoint::index_of(name);          \
    static_assert(be_failpoint < ::be::failpoint::kCount, "not in the list"); \
    ::be::failpoint::reach(be_failpoint);                                     \
  } while (false)

#else

namespace be::failpoint {

inline constexpr bool kCompiledIn = false;

}  // namespace be::failpoint

#define BE_FAILPOINT(name) \
  do {                     \
  } while (false)

#endif

namespace be::failpoint {

// How much of a copy of `bytes` is done before its failpoint "middle": all of it where failpoints
// are not compiled in. A copy of one cache line has no middle.
constexpr size_t before_middle(size_t bytes) {
  return kCompiledIn && bytes > 64 ? bytes / 2 : bytes;
}

}  // namespace be::failpoint
