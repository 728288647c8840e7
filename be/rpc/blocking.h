// The two places where rpc lets a user's thread wait for an I/O thread: blocking calls and
// destructors. Never used on a started I/O thread.
#pragma once

#include <condition_variable>
#include <mutex>

#include "be/base/task.h"
#include "be/transport/io_thread.h"

namespace be::rpc {

// Set once, by any thread. The waiter may destroy it as soon as wait() has returned.
class Event {
 public:
  void set() {
    std::lock_guard lock(mutex_);
    set_ = true;
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return set_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool set_ = false;
};

// Runs `action` on `thread` and returns when it has run. A thread that has stopped touches
// nothing any more: then, and on `thread` itself, it runs here.
template <typename Action>
void run_on(IoThread& thread, Action action) {
  if (!thread.on_this_thread()) {
    Event done;
    if (thread.post([&] {
          action();
          done.set();
        })) {
      done.wait();
      return;
    }
  }
  action();
}

}  // namespace be::rpc
