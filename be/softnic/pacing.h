// Softnic as slow as a NIC: bytes take their time on a link, completions are held back.
//
//   posted --(its turn on the link)--> [ length / rate ] --> executed --[ delay ]--> may complete
//
// One link per device, which the work requests of all its QPs share, one at a time: a QP's next
// request queues for the link when its last one has left, so QPs take turns (but for a poll that
// comes late: it may let one QP take the link again before it looks at the next). "Executed" is all
// that it is without pacing: bytes of a WRITE in place, message in the peer's ring. The peer's
// acknowledgement is still needed for the completion.
//
//   start = max(link free, request posted, last request of its QP gone)
//   due   = start + length / rate
//
// A poll that comes late thus executes what a NIC would have sent meanwhile, and the link loses no
// time by it. Nobody waits here: polls look at the clock, sleepers are woken by the channel's
// timer. Off (no Pacing at the QP) it costs a branch on a null pointer where a send is posted and
// reported.
//
// Link: any thread. Pacing: I/O thread of its QP.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

#include "be/verbs/rc/send_queue.h"

namespace be::softnic {

class Link {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Link(uint64_t bits_per_second) : bits_per_second_(bits_per_second) {}  // 0: no link

  bool paces() const { return bits_per_second_ != 0; }
  std::chrono::nanoseconds time_of(uint32_t bytes) const;
  // Takes the link for `bytes` that are ready since `ready`; when they have left.
  Clock::time_point take(uint32_t bytes, Clock::time_point ready);

 private:
  const uint64_t bits_per_second_;
  std::atomic<Clock::rep> free_at_{0};
};

// Times of one QP's send queue.
class Pacing {
 public:
  using Clock = Link::Clock;

  Pacing(Link& link, std::chrono::nanoseconds completion_delay, uint32_t send_depth);

  bool has_link() const { return link_.paces(); }

  // `index`: of the work request in the send queue.
  void posted(uint32_t index) { posted_[index & mask_] = Clock::now(); }
  // When the oldest request that is not executed, of `length` bytes, has left; it queues for the
  // link if it does not yet.
  Clock::time_point leaves(uint32_t index, uint32_t length);
  void executed(uint32_t index) {
    executed_[index & mask_] = Clock::now();
    on_link_ = false;
  }

  // Releases what has been held back long enough. When the next will be; max(): nothing is held.
  Clock::time_point release(rc::SendQueue& sends) const;

 private:
  Link& link_;
  const std::chrono::nanoseconds completion_delay_;
  const uint32_t mask_;
  std::unique_ptr<Clock::time_point[]> posted_;
  std::unique_ptr<Clock::time_point[]> executed_;
  bool on_link_ = false;
  Clock::time_point left_{};  // the request on the link, else the last one
};

}  // namespace be::softnic
