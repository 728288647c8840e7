// A first-in first-out queue in one circular array that grows by doubling and never shrinks:
// no allocation in the steady state (std::deque allocates a node for every large element).
//
// Not thread-safe. Elements are moved when the array grows.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace be {

template <typename T>
class RingQueue {
 public:
  bool empty() const { return head_ == tail_; }
  size_t size() const { return tail_ - head_; }
  T& front() { return slots_[head_ & mask()]; }
  T& back() { return slots_[(tail_ - 1) & mask()]; }
  T& operator[](size_t index) { return slots_[(head_ + index) & mask()]; }  // from the front

  T& push_back(T value) {
    if (size() == slots_.size()) grow();
    T& slot = slots_[tail_++ & mask()];
    slot = std::move(value);
    return slot;
  }

  // The slot keeps the moved-from value: take what it owns first.
  T pop_front() { return std::move(slots_[head_++ & mask()]); }

 private:
  size_t mask() const { return slots_.size() - 1; }

  void grow() {
    std::vector<T> larger(slots_.empty() ? 8 : 2 * slots_.size());
    const size_t count = size();
    for (size_t i = 0; i < count; ++i) larger[i] = std::move((*this)[i]);
    slots_ = std::move(larger);
    head_ = 0;
    tail_ = count;
  }

  std::vector<T> slots_;  // a power of two
  size_t head_ = 0;       // both only grow; compared by subtraction
  size_t tail_ = 0;
};

}  // namespace be
