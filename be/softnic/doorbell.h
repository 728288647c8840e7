// Telling a completion queue that one of its queue pairs has something: ready bit and wake.
//
// The protocol of sleep and wake is in shared_layout.h. Any thread.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "be/softnic/shared_layout.h"

namespace be::softnic {

inline void signal_event_fd(int fd) {
  const uint64_t one = 1;
  // Only a full counter (2^64 - 2 wakes) could refuse: then the reader is awake anyway.
  if (write(fd, &one, sizeof(one)) < 0) return;
}

// After publishing. Returns the owner's arming (shared_layout.h), for wake_armed.
inline uint64_t mark_ready(Doorbell& bell, uint32_t bit) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  std::atomic<uint64_t>& word = bell.ready[bit / 64];
  const uint64_t mask = uint64_t{1} << (bit % 64);
  // The bit is set nearly always (the poller clears it only when it looks): reading keeps the
  // line shared where a blind write would make it bounce.
  if (!(word.load(std::memory_order_relaxed) & mask)) {
    word.fetch_or(mask, std::memory_order_seq_cst);
  }
  return bell.armed.load(std::memory_order_seq_cst);
}

// Wakes the owner, unless the caller has done so for this arming: `woken` is its note of that.
void wake_armed(uint64_t armed, uint64_t* woken, int event_fd);

}  // namespace be::softnic
