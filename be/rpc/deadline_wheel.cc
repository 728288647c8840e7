#include "be/rpc/deadline_wheel.h"

#include <algorithm>
#include <bit>

namespace be::rpc {

DeadlineWheel::DeadlineWheel() { heads_.fill(kNone); }

Time DeadlineWheel::insert(uint32_t index, Time deadline, Time now) {
  if (index >= entries_.size()) entries_.resize(std::max<size_t>(index + 1, 2 * entries_.size()));
  if (size_ == 0) last_tick_ = tick_of(now);
  // kNever and its like: far enough, and without overflow.
  const int64_t tick = std::max(tick_of(std::min(deadline, kNever - 2 * kTick)), last_tick_) + 1;
  const uint32_t bucket = static_cast<uint32_t>(tick) % kBuckets;

  Entry& entry = entries_[index];
  entry.deadline = deadline;
  entry.bucket = bucket;
  entry.previous = kNone;
  entry.next = heads_[bucket];
  if (entry.next != kNone) entries_[entry.next].previous = index;
  heads_[bucket] = index;
  occupied_[bucket / 64] |= uint64_t{1} << (bucket % 64);
  ++size_;
  return time_of(tick);
}

void DeadlineWheel::remove(uint32_t index) {
  if (index >= entries_.size()) return;
  Entry& entry = entries_[index];
  if (entry.bucket == kNone) return;
  if (entry.previous != kNone) {
    entries_[entry.previous].next = entry.next;
  } else {
    heads_[entry.bucket] = entry.next;
    if (entry.next == kNone) occupied_[entry.bucket / 64] &= ~(uint64_t{1} << (entry.bucket % 64));
  }
  if (entry.next != kNone) entries_[entry.next].previous = entry.previous;
  entry.bucket = kNone;
  --size_;
}

void DeadlineWheel::expire(Time now, std::vector<uint32_t>& expired) {
  const int64_t tick = tick_of(now);
  if (tick <= last_tick_) return;
  const int64_t first = std::max(last_tick_ + 1, tick - int64_t{kBuckets} + 1);  // one turn is all
  for (int64_t t = first; t <= tick; ++t) {
    expire_bucket(static_cast<uint32_t>(t) % kBuckets, now, expired);
  }
  last_tick_ = tick;
}

void DeadlineWheel::expire_bucket(uint32_t bucket, Time now, std::vector<uint32_t>& expired) {
  for (uint32_t index = heads_[bucket]; index != kNone;) {
    const uint32_t next = entries_[index].next;
    if (entries_[index].deadline <= now) {
      remove(index);
      expired.push_back(index);
    }
    index = next;
  }
}

Time DeadlineWheel::next() const {
  if (size_ == 0) return kNever;
  // The first occupied bucket after last_tick_, going round once. The word in which the round
  // begins is seen twice: from `start` on, and at the end as a whole (its rest is empty then).
  const uint32_t start = static_cast<uint32_t>(last_tick_ + 1) % kBuckets;
  for (uint32_t step = 0; step < kBuckets;) {
    const uint32_t bucket = (start + step) % kBuckets;
    const uint64_t rest = occupied_[bucket / 64] >> (bucket % 64);
    if (rest != 0) return time_of(last_tick_ + 1 + step + std::countr_zero(rest));
    step += 64 - bucket % 64;
  }
  return kNever;  // not reached: size_ counts what is in the buckets
}

}  // namespace be::rpc
