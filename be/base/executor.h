// Where code runs: long-lived loops (I/O threads) and short tasks (worker pools).
//
// No folder but base/ starts a thread. The kernel form uses real threads; the virtual form
// (be/sim) runs every step and task in one thread, in virtual time.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "be/base/poller.h"
#include "be/base/task.h"

namespace be {

// A running loop. Destruction requires that step has returned false or stop was asked for;
// it waits for the last step to end.
class Loop {
 public:
  virtual ~Loop() = default;
  virtual void join() = 0;  // returns when the step function has returned false; not from itself
};

// Runs tasks on its threads: taken up in the order of submission, so a pool of one thread also
// ends them in that order. Unbounded: who submits bounds what is outstanding.
class WorkerPool {
 public:
  virtual ~WorkerPool() = default;     // runs what was submitted, then ends
  virtual void submit(Task task) = 0;  // any thread; never blocks
};

// Opened once, by any thread: how a thread that is no loop waits for something that a loop or a
// worker does (blocking calls, destructors). The waiter may destroy it as soon as wait() has
// returned. The virtual form runs the simulation until it is open.
class Gate {
 public:
  virtual ~Gate() = default;
  virtual void open() = 0;
  virtual void wait() = 0;  // never called from a loop or a worker
};

class Executor {
 public:
  virtual ~Executor() = default;

  // Calls step() again and again until it returns false. The step waits in `poller` (and
  // nowhere else) when it has nothing to do. `name` is seen in top and gdb (15 characters).
  virtual Result<std::unique_ptr<Loop>> start_loop(const std::string& name, Poller& poller,
                                                   std::function<bool()> step) = 0;
  virtual Result<std::unique_ptr<WorkerPool>> start_workers(const std::string& name,
                                                            int threads) = 0;
  virtual std::unique_ptr<Gate> make_gate() = 0;
};

}  // namespace be
