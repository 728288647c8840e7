// IoThread: the loop that owns engines, TCP connections, timers and one CQ a device.
//
// One iteration: take posted tasks, poll the CQs, let engines progress, run timers. While there
// is work it goes on; an empty iteration yields the core; after `spin` without work it arms the
// CQs, looks once more, and sleeps in its Poller (blueprint 7; PEERS.md "Waiting").
//
// Either started (the Executor runs it) or driven: the application calls poll() or run_until()
// from one thread of its own. Everything but post() and wake-ups is for the owner thread.
//
// In a forked child (base/fork.h) it has stopped: post() refuses, poll() and run_until() return at
// once. A child that was forked from within a callback must not return from it: exec or exit.
#pragma once

#include <functional>
#include <memory>

#include "be/base/status.h"
#include "be/base/task.h"
#include "be/base/timer_queue.h"
#include "be/base/world.h"

namespace be {

class IoThread {
 public:
  virtual ~IoThread() = default;

  // Runs `task` on this thread, in the order posted. Any thread; never blocks. False: the
  // thread has stopped and the task was dropped, destroyed here.
  virtual bool post(Task task) = 0;

  virtual bool on_this_thread() const = 0;
  virtual Time now() const = 0;  // of the current iteration
  virtual TimerQueue& timers() = 0;
  virtual Poller& poller() = 0;
  virtual World& world() = 0;

  // Driven mode. One iteration without waiting; true if it did something.
  virtual bool poll() = 0;
  // Iterates, yielding and sleeping as above, until `done()` or the deadline. False: deadline.
  // `spin_forever` never sleeps (benchmarks: "polling").
  virtual bool run_until(const std::function<bool()>& done, Time deadline,
                         bool spin_forever = false) = 0;
};

}  // namespace be
