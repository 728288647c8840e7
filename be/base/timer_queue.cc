#include "be/base/timer_queue.h"

#include <algorithm>
#include <utility>

namespace be {
namespace {

constexpr size_t kArity = 4;  // one parent's children share about two cache lines

}  // namespace

TimerId TimerQueue::schedule(Time when, Task action) {
  const uint32_t slot = take_slot();
  slots_[slot].action = std::move(action);
  const Entry entry{when, ++last_sequence_, slot};
  heap_.push_back(entry);
  sift_up(heap_.size() - 1, entry);
  return (static_cast<TimerId>(slots_[slot].generation) << 32) | slot;
}

bool TimerQueue::cancel(TimerId id) {
  const auto slot = static_cast<uint32_t>(id);
  const auto generation = static_cast<uint32_t>(id >> 32);
  if (slot >= slots_.size() || slots_[slot].generation != generation) return false;
  // The action dies at the end of this statement: its destructor may use the queue again.
  release(slots_[slot].place);
  return true;
}

int TimerQueue::run_due(Time now) {
  int count = 0;
  while (!heap_.empty() && heap_.front().when <= now) {
    Task action = release(0);
    action();
    ++count;
  }
  return count;
}

uint32_t TimerQueue::take_slot() {
  if (free_ == kNoSlot) {
    slots_.emplace_back();
    return static_cast<uint32_t>(slots_.size() - 1);
  }
  const uint32_t slot = free_;
  free_ = slots_[slot].place;
  return slot;
}

Task TimerQueue::release(size_t place) {
  const uint32_t slot = heap_[place].slot;
  const Entry last = heap_.back();
  heap_.pop_back();
  if (place < heap_.size()) {
    const bool rises = place > 0 && last.before(heap_[(place - 1) / kArity]);
    rises ? sift_up(place, last) : sift_down(place, last);
  }
  Slot& freed = slots_[slot];
  Task action = std::move(freed.action);
  if (++freed.generation == 0) freed.generation = 1;  // keeps every id above 0
  freed.place = free_;
  free_ = slot;
  return action;
}

void TimerQueue::put(size_t place, const Entry& entry) {
  heap_[place] = entry;
  slots_[entry.slot].place = static_cast<uint32_t>(place);
}

void TimerQueue::sift_up(size_t place, const Entry& entry) {
  while (place > 0) {
    const size_t parent = (place - 1) / kArity;
    if (!entry.before(heap_[parent])) break;
    put(place, heap_[parent]);
    place = parent;
  }
  put(place, entry);
}

void TimerQueue::sift_down(size_t place, const Entry& entry) {
  for (;;) {
    const size_t first = place * kArity + 1;
    if (first >= heap_.size()) break;
    const size_t end = std::min(first + kArity, heap_.size());
    size_t earliest = first;
    for (size_t child = first + 1; child < end; ++child) {
      if (heap_[child].before(heap_[earliest])) earliest = child;
    }
    if (!heap_[earliest].before(entry)) break;
    put(place, heap_[earliest]);
    place = earliest;
  }
  put(place, entry);
}

}  // namespace be
