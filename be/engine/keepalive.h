// Is the peer's process alive and running? (blueprint 6, Keepalive)
//
// Each interval both ends write a growing sequence number into the other's word. We count our own
// ticks during which the peer's number did not grow:
//
//   dead   <=>  silent ticks in a row >= limit = ceil(timeout / interval)
//
// however much we ourselves send. A tick of ours that comes late (we were stopped, or starved)
// restarts the count: the silence may be ours. A smaller number in the word is ignored (an older
// WRITE that arrives late). At most one WRITE of ours is on its way at a time. The timeout is at
// least three of the peer's intervals.
//
//   due ......... latest = due + interval / 8        the next: an interval after this one
//
// So a thread wakes once for all engines that are due about then; from then on they tick together.
//
// Pure: it is told the time. Owned by one Engine, used on its I/O thread only.
#pragma once

#include <cstdint>

#include "be/base/time.h"

namespace be {

class Keepalive {
 public:
  Keepalive(Nanoseconds interval, Nanoseconds timeout, Nanoseconds peer_interval, Time start);

  Time next_tick() const { return due_; }
  Time latest_tick() const { return saturating_add(due_, slack()); }
  Nanoseconds timeout() const { return interval_ * limit_; }  // in effect

  struct Verdict {
    bool dead = false;
    uint64_t write = 0;  // this sequence number is to be written; 0: nothing
  };
  // `heard`: what is in our word. To be called at latest_tick(); does nothing before next_tick().
  Verdict tick(Time now, uint64_t heard);

  void written() { writing_ = false; }  // our WRITE has completed

 private:
  Nanoseconds slack() const { return interval_ / 8; }

  Nanoseconds interval_;
  uint32_t limit_;
  Time due_;
  uint32_t silent_ticks_ = 0;
  uint64_t heard_ = 0;
  uint64_t sequence_ = 0;
  bool writing_ = false;
};

}  // namespace be
