// Waiting for descriptors, and nothing else.
//
// One Poller belongs to one I/O thread, which alone adds, changes, removes and waits; any
// thread may call wake(). Readiness is level-triggered: a handler that leaves data unread is
// called again by the next wait. The kernel form is one epoll with one eventfd for wake();
// the virtual form (be/sim) has handles instead of descriptors and returns from wait() at
// once, leaving it to its Executor to call the thread again when something is due.
#pragma once

#include <cstdint>
#include <memory>

#include "be/base/status.h"
#include "be/base/time.h"

namespace be {

class PollHandler {
 public:
  // Called from Poller::wait on the owner's thread. May add and remove any descriptor,
  // its own included. Hang-up and error are reported as readable: reading tells which.
  virtual void on_ready(bool readable, bool writable) = 0;

 protected:
  ~PollHandler() = default;
};

class Poller {
 public:
  virtual ~Poller() = default;

  // The handler must outlive its registration. A new registration waits for readability,
  // and for writability too if `writable`.
  virtual Status add(int fd, PollHandler* handler, bool writable = false) = 0;
  virtual Status set_writable(int fd, bool writable) = 0;
  // Off: data may wait unread (back-pressure). Hang-up and error are still reported.
  virtual Status set_readable(int fd, bool readable) = 0;
  virtual void remove(int fd) = 0;  // before fd is closed; unknown fds are ignored

  // Dispatches what is ready; waits for the first event until `until` if nothing is
  // (a time that has passed: only looks). Returns how many handlers were called.
  virtual int wait(Time until) = 0;

  virtual void wake() = 0;  // any thread: the current or the next wait returns
  // Gives the core away for a moment (sched_yield). True: somebody else wants this core too, as far
  // as the latest yields could tell.
  virtual bool yield() = 0;
};

}  // namespace be
