// Virtual time: one queue of events, run one after the other in one thread.
//
//   at(when, action) -> events in order of (time, order of at()) -> step(): clock jumps, action
//   runs
//
// The event queue never waits: between two events no time passes for anybody. Also keeps the
// trace, the random draws and the first violation: whatever a check finds is told to violate(),
// and the simulation is over.
//
// One thread. Outlives everything that runs in it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "be/base/task.h"
#include "be/base/time.h"
#include "be/sim/random.h"
#include "be/sim/trace.h"

namespace be::sim {

class Simulation final : public Clock {
 public:
  explicit Simulation(uint64_t seed) : random_(seed) {}
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;

  Time now() const override { return now_; }
  Random& random() { return random_; }
  Trace& trace() { return trace_; }
  void note(Happening what, uint32_t host, uint64_t a, uint64_t b) {
    trace_.note(now_, what, host, a, b);
  }

  void at(Time when, Task action);  // a time that has passed: now
  void after(Nanoseconds delay, Task action) { at(now_ + delay, std::move(action)); }

  bool step();  // false: no event is left
  // Steps until `done`, the deadline (events at it still run), or a violation. True: done.
  bool run_until(const std::function<bool()>& done, Time deadline);

  void violate(std::string what) {
    if (violation_.empty()) violation_ = std::move(what);
  }
  // Somebody outside of all events waits for `open`. A violation meanwhile ends the simulation.
  void wait_for(const bool& open, const char* what);
  // If there is a violation: tells on_violation, which must not return (there is no way back into
  // code whose invariants are broken).
  void end_if_violated();
  std::function<void()> on_violation;

  const std::string& violation() const { return violation_; }  // empty: none

 private:
  struct Event {
    Time when;
    uint64_t order;
    Task action;
  };
  static constexpr Nanoseconds kLongestWait = 600s;
  static bool later(const Event& a, const Event& b) {
    return a.when != b.when ? a.when > b.when : a.order > b.order;
  }

  Time now_{};
  uint64_t order_ = 0;
  std::vector<Event> events_;  // a heap by later()
  Random random_;
  Trace trace_;
  std::string violation_;
};

}  // namespace be::sim
