#include "be/memory/spin_lock.h"

#include <sched.h>

#include <ctime>

namespace be::memory {
namespace {

constexpr int kSpins = 100;
constexpr int kYields = 100;
constexpr timespec kSleep = {.tv_sec = 0, .tv_nsec = 50'000};

void pause() { __builtin_ia32_pause(); }

}  // namespace

void SpinLock::wait() {
  for (int tries = 0;; ++tries) {
    if (!taken_.load(std::memory_order_relaxed) &&
        !taken_.exchange(true, std::memory_order_acquire)) {
      return;
    }
    if (tries < kSpins) {
      pause();
    } else if (tries < kSpins + kYields) {
      ::sched_yield();
    } else {
      ::nanosleep(&kSleep, nullptr);
    }
  }
}

}  // namespace be::memory
