// A bounded ring of pointers from one thread to one other.
//
//   producer: tail_     consumer: head_     0 <= tail_ - head_ <= capacity
//
// Each side remembers the other's counter and reads it anew only when that says "full" or "empty",
// so a cache line moves once a batch and not once a pointer. One producer, one consumer, which may
// be the same thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <vector>

namespace be::bench {

class PointerRing {
 public:
  explicit PointerRing(size_t capacity) : slots_(capacity) {}

  bool push(void* pointer) {  // false: full
    const size_t tail = tail_.load(std::memory_order_relaxed);
    if (tail - seen_head_ == slots_.size()) {
      seen_head_ = head_.load(std::memory_order_acquire);
      if (tail - seen_head_ == slots_.size()) return false;
    }
    slots_[tail % slots_.size()] = pointer;
    tail_.store(tail + 1, std::memory_order_release);
    return true;
  }

  void* pop() {  // null: empty
    const size_t head = head_.load(std::memory_order_relaxed);
    if (seen_tail_ == head) {
      seen_tail_ = tail_.load(std::memory_order_acquire);
      if (seen_tail_ == head) return nullptr;
    }
    void* pointer = slots_[head % slots_.size()];
    head_.store(head + 1, std::memory_order_release);
    return pointer;
  }

  size_t size() const {  // about so many, while the other side works
    return tail_.load(std::memory_order_acquire) - head_.load(std::memory_order_acquire);
  }
  size_t capacity() const { return slots_.size(); }

 private:
  std::vector<void*> slots_;
  alignas(64) std::atomic<size_t> tail_ = 0;
  size_t seen_head_ = 0;  // the producer's
  alignas(64) std::atomic<size_t> head_ = 0;
  size_t seen_tail_ = 0;  // the consumer's
};

}  // namespace be::bench
