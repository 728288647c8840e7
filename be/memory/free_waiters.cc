#include "be/memory/free_waiters.h"

#include <utility>

namespace be::memory {

uint64_t FreeWaiters::add(std::function<void()> callback) {
  std::lock_guard lock(mutex_);
  const uint64_t id = ++last_id_;
  if (starved()) {
    waiting_.emplace(id, std::move(callback));
  } else {
    callback();
  }
  return id;
}

void FreeWaiters::cancel(uint64_t id) {
  std::lock_guard lock(mutex_);
  waiting_.erase(id);
}

void FreeWaiters::fire() {
  std::lock_guard lock(mutex_);
  starved_.store(false, std::memory_order_relaxed);
  // Those that fail again while we call, and wait again, have a higher id.
  const uint64_t last = last_id_;
  while (!waiting_.empty() && waiting_.begin()->first <= last) {
    const auto waiter = waiting_.extract(waiting_.begin());
    waiter.mapped()();
  }
}

}  // namespace be::memory
