// Timers of one I/O thread, in order of their time.
//
// Pure: it is told the time. Owned by one IoThread and used on its thread only. Timers due at
// the same time run in the order in which they were set, so that a simulation repeats exactly.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <unordered_map>
#include <utility>

#include "be/base/time.h"

namespace be {

using TimerId = uint64_t;  // 0 is never given out: "no timer"

class TimerQueue {
 public:
  TimerId schedule(Time when, std::function<void()> action);
  bool cancel(TimerId id);  // false: it has run, runs now, or never was

  // Runs what is due at `now`, also what is added meanwhile and due. Returns how many ran.
  int run_due(Time now);
  Time next() const;  // kNever if there is none
  bool empty() const { return timers_.empty(); }

 private:
  using Key = std::pair<Time, TimerId>;
  std::map<Key, std::function<void()>> timers_;
  std::unordered_map<TimerId, Time> when_;
  TimerId last_ = 0;
};

}  // namespace be
