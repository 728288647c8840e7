// When calls end for lack of an answer: a coarse wheel of deadlines, one for a Channel.
//
//   tick = 2^22 ns (4.2 ms); a deadline waits in bucket (its tick + 1) % 256
//   expired at the first expire() in that tick: never early, at most one tick late
//
// Nearly all calls are answered long before their deadline, so entering and leaving must be
// cheap, while the exact moment of expiry does not matter: both are a few stores into a doubly
// linked list by index. A deadline more than a turn (1.07 s) away is passed over and met again
// one turn later. After Varghese and Lauck, "Hashed and hierarchical timing wheels" (1987).
//
// Pure: it is told the time. Entries are small indices (the slots of calls); no allocation once
// the largest index has been seen. Owned by one Channel, used on its I/O thread only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "be/base/time.h"

namespace be::rpc {

class DeadlineWheel {
 public:
  static constexpr Nanoseconds kTick{1 << 22};

  DeadlineWheel();

  // Requires: index is not inside. Returns when expire() must be called for it at the latest.
  Time insert(uint32_t index, Time deadline, Time now);
  void remove(uint32_t index);  // an index that is not inside is ignored

  // Takes out all whose time has come and appends them to `expired`, in no particular order.
  void expire(Time now, std::vector<uint32_t>& expired);

  // Call expire() at this time: nothing expires before it (it may turn out that nothing does
  // then either). kNever if nothing is inside.
  Time next() const;
  size_t size() const { return size_; }

 private:
  static constexpr uint32_t kBuckets = 256;
  static constexpr uint32_t kNone = UINT32_MAX;

  struct Entry {
    Time deadline{};
    uint32_t next = kNone;
    uint32_t previous = kNone;  // kNone: first of its bucket
    uint32_t bucket = kNone;    // kNone: not inside
  };

  static int64_t tick_of(Time time) { return time.time_since_epoch() / kTick; }
  static Time time_of(int64_t tick) { return Time(tick * kTick); }
  void expire_bucket(uint32_t bucket, Time now, std::vector<uint32_t>& expired);

  std::vector<Entry> entries_;  // by index
  std::array<uint32_t, kBuckets> heads_;
  std::array<uint64_t, kBuckets / 64> occupied_{};  // bit = bucket is not empty
  int64_t last_tick_ = 0;                           // all ticks up to here have been expired
  size_t size_ = 0;
};

}  // namespace be::rpc
