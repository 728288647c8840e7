// A softnic completion queue: the core's ring, and the QPs to look at when it is polled.
//
//   few members    each poll looks at every member's next slot (direct)
//   more           each poll looks at the ready bits that peers set, and at `pending`
//
// Used on the I/O thread of its channel only, but for the doorbell.
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <vector>

#include "be/softnic/channel.h"
#include "be/softnic/doorbell.h"
#include "be/verbs/rc/completion_queue.h"

namespace be::softnic {

struct QueuePair;

// Up to here the next slots of all members stay in the first-level cache.
inline constexpr size_t kDirectMembers = 8;

struct CompletionQueue : ibv_cq {
  explicit CompletionQueue(uint32_t entries) : ibv_cq{}, core(entries) {}

  bool direct() const { return active.size() <= kDirectMembers; }
  void look_again(uint32_t bit) { pending[bit / 64] |= uint64_t{1} << (bit % 64); }

  // Completions were made, or can be, outside of a poll: nobody else would wake the sleeper.
  void wake_if_armed() {
    if (!armed || woken) return;
    woken = true;
    signal_event_fd(channel->event_fd());
  }

  rc::CompletionQueue core;
  Channel* channel = nullptr;
  Doorbell* bell = nullptr;
  uint32_t bell_index = 0;
  uint32_t users = 0;                      // QPs that name it as send or receive queue
  std::vector<QueuePair*> members;         // by ready bit; null: free
  std::vector<QueuePair*> active;          // members without the gaps
  std::vector<uint64_t> pending;           // bits to look at in any case
  std::vector<QueuePair*> unacknowledged;  // have matched messages that the peer does not know of
  std::deque<QueuePair*> deferred;         // have large WRITEs to execute
  uint32_t cursor = 0;                     // where the next poll begins
  bool armed = false;                      // by the user, no event taken yet
  bool woken = false;                      // armed, and to be told in any case
  ArmedFor armed_for = kNotArmed;
  uint64_t armings = 0;
};

}  // namespace be::softnic
