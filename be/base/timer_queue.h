// Timers of one I/O thread, in order of their time.
//
// Pure: it is told the time. Owned by one IoThread and used on its thread only. Timers due at
// the same time run in the order in which they were set, so that a simulation repeats exactly.
//
//   heap_   4-ary heap of (when, sequence, slot): the parent is never later than its children
//   slots_  action and place in the heap; slots_[heap_[i].slot].place == i
//
// Nearly every timer is a deadline that is cancelled: set in rising order it goes to the end of
// the heap at once, and its id leads to its place without a search. Slots are used again, so a
// steady state allocates nothing (as long as the action fits into Task: two pointers' worth).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "be/base/task.h"
#include "be/base/time.h"

namespace be {

using TimerId = uint64_t;  // 0 is never given out: "no timer"

class TimerQueue {
 public:
  TimerId schedule(Time when, Task action);
  bool cancel(TimerId id);  // false: it has run, runs now, or never was

  // Runs what is due at `now`, also what is added meanwhile and due. Returns how many ran.
  int run_due(Time now);
  Time next() const { return heap_.empty() ? kNever : heap_.front().when; }
  bool empty() const { return heap_.empty(); }
  size_t size() const { return heap_.size(); }

 private:
  struct Entry {
    Time when;
    uint64_t sequence;
    uint32_t slot;
    bool before(const Entry& other) const {
      return when != other.when ? when < other.when : sequence < other.sequence;
    }
  };
  struct Slot {
    Task action;
    uint32_t generation = 1;  // an id of an earlier use of this slot names another generation
    uint32_t place = 0;       // in heap_; while the slot is free: the next free slot
  };
  static constexpr uint32_t kNoSlot = UINT32_MAX;

  uint32_t take_slot();
  Task release(size_t place);  // takes the entry out of the heap, frees its slot
  void put(size_t place, const Entry& entry);
  void sift_up(size_t place, const Entry& entry);
  void sift_down(size_t place, const Entry& entry);

  std::vector<Entry> heap_;
  std::vector<Slot> slots_;
  uint32_t free_ = kNoSlot;
  uint64_t last_sequence_ = 0;
};

}  // namespace be
