#include "be/base/failpoint.h"

#ifdef BE_FAILPOINTS

#include <atomic>
#include <cassert>
#include <csignal>

namespace be::failpoint {
namespace {

// The armed one: index << 33 | action << 32 | hits that are missing. All ones: none.
constexpr uint64_t kNone = UINT64_MAX;
std::atomic<uint64_t> state{kNone};

}  // namespace

void arm(std::string_view name, uint32_t hit, Action action) {
  const size_t index = index_of(name);
  assert(index < kCount && hit > 0);
  state.store(uint64_t{index} << 33 | static_cast<uint64_t>(action) << 32 | hit);
}

void disarm() { state.store(kNone); }

bool armed() { return state.load() != kNone; }

void reach(size_t index) {
  uint64_t seen = state.load(std::memory_order_relaxed);
  for (;;) {
    if (seen == kNone || seen >> 33 != index) return;
    const bool now = static_cast<uint32_t>(seen) == 1;
    if (!state.compare_exchange_weak(seen, now ? kNone : seen - 1)) continue;
    if (!now) return;
    break;
  }
  const bool stop = static_cast<Action>(seen >> 32 & 1) == Action::kStop;
  // To this thread, so that it makes no step more, and thereby to the whole process. On return
  // from a stop it has been continued.
  raise(stop ? SIGSTOP : SIGKILL);
}

}  // namespace be::failpoint

#endif
