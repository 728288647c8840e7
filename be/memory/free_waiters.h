// Who waits for memory after an allocation has failed (RegisteredPool::on_free).
//
//   starve()    an allocation is failing                 starved = true
//   fire()      memory has come back, starved was seen   starved = false, all are called once
//
// A waiter that is added when nobody is starved any more has missed the return: it is called at
// once. Any thread. Callbacks run on the thread that frees, one at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>

namespace be::memory {

class FreeWaiters {
 public:
  uint64_t add(std::function<void()> callback);
  void cancel(uint64_t id);  // afterwards it neither runs nor will, unless called from within

  void starve() { starved_.store(true, std::memory_order_seq_cst); }
  bool starved() const { return starved_.load(std::memory_order_relaxed); }  // on every free
  void fire();

 private:
  std::atomic<bool> starved_ = false;
  std::recursive_mutex mutex_;  // held over callbacks, which may allocate, free, add and cancel
  std::map<uint64_t, std::function<void()>> waiting_;
  uint64_t last_id_ = 0;
};

}  // namespace be::memory
