#include "be/rpc/call_table.h"

#include <algorithm>

namespace be::rpc {
namespace {

constexpr uint64_t kIndexMask = UINT32_MAX;
constexpr uint64_t kOneTag = uint64_t{1} << 32;

uint64_t next_tag(uint64_t head) { return (head & ~kIndexMask) + kOneTag; }

}  // namespace

CallTable::CallTable(uint32_t max_calls)
    : max_calls_(std::max(max_calls, 1u)),
      chunks_((max_calls_ + kChunk - 1) / kChunk),
      free_(kNone) {}

uint32_t CallTable::take() {
  const uint32_t index = pop_free();
  return index != kNone ? index : take_from_new_chunk();
}

uint32_t CallTable::pop_free() {
  uint64_t head = free_.load(std::memory_order_acquire);
  for (;;) {
    const uint32_t index = static_cast<uint32_t>(head);
    if (index == kNone) return kNone;
    const uint32_t next = slot(index).next.load(std::memory_order_relaxed);
    if (free_.compare_exchange_weak(head, next_tag(head) | next, std::memory_order_acquire)) {
      return index;
    }
  }
}

uint32_t CallTable::take_from_new_chunk() {
  std::lock_guard lock(growing_);
  if (const uint32_t index = pop_free(); index != kNone) return index;  // another thread has grown
  const uint32_t first = size_.load(std::memory_order_relaxed);
  if (first == max_calls_) return kNone;
  const uint32_t end = std::min(first + kChunk, max_calls_);
  chunks_[first / kChunk] = std::make_unique<Chunk>();
  for (uint32_t i = first + 1; i + 1 < end; ++i) {
    slot(i).next.store(i + 1, std::memory_order_relaxed);
  }
  size_.store(end, std::memory_order_release);
  if (first + 1 < end) push_free(first + 1, end - 1);
  return first;
}

void CallTable::release(uint32_t index) {
  Slot& ended = slot(index);
  ended.state = CallState::kFree;
  if (++ended.generation == 0) ended.generation = 1;  // CallId 0 is never given out
  push_free(index, index);
}

void CallTable::push_free(uint32_t first, uint32_t last) {
  uint64_t head = free_.load(std::memory_order_relaxed);
  do {
    slot(last).next.store(static_cast<uint32_t>(head), std::memory_order_relaxed);
  } while (!free_.compare_exchange_weak(head, next_tag(head) | first, std::memory_order_release));
}

bool CallTable::submit(uint32_t index) {
  uint32_t head = inbox_.load(std::memory_order_relaxed);
  do {
    slot(index).next.store(head, std::memory_order_relaxed);
  } while (!inbox_.compare_exchange_weak(head, index, std::memory_order_release));
  return head == kNone;
}

std::vector<uint32_t>& CallTable::take_submitted() {
  submitted_.clear();
  uint32_t index = inbox_.exchange(kNone, std::memory_order_acquire);
  for (; index != kNone; index = slot(index).next.load(std::memory_order_relaxed)) {
    submitted_.push_back(index);
  }
  std::reverse(submitted_.begin(), submitted_.end());
  return submitted_;
}

uint32_t CallTable::find(CallId call) {
  const uint32_t index = static_cast<uint32_t>(call);
  if (index >= size()) return kNone;
  const Slot& candidate = slot(index);
  if (candidate.state == CallState::kFree || candidate.generation != call >> 32) return kNone;
  return index;
}

}  // namespace be::rpc
