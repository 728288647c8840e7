// A lock for sections of some hundred nanoseconds that never block.
//
// Taking it costs one atomic exchange and giving it back a plain store; a mutex pays two exchanges,
// and each of them waits until the memory that the thread has just written is in the cache. Whoever
// finds it taken spins for about a microsecond, then offers the core to others (the holder may have
// been preempted), then sleeps. Any thread; lockable by std::lock_guard.
#pragma once

#include <atomic>

namespace be::memory {

class SpinLock {
 public:
  void lock() {
    if (taken_.exchange(true, std::memory_order_acquire)) [[unlikely]]
      wait();
  }
  void unlock() { taken_.store(false, std::memory_order_release); }

 private:
  void wait();

  std::atomic<bool> taken_ = false;
};

}  // namespace be::memory
