// Workload: what the processes of a seed do, and the model that says whether it came out right.
//
// Called outside of all events; what does not hold is told to the simulation as a violation.
#pragma once

#include <string>

#include "be/sim/cluster.h"

namespace be::sim {

class Workload {
 public:
  virtual ~Workload() = default;

  virtual void on_start(Process& process) = 0;  // it runs, perhaps again
  virtual void on_end(Process& process) = 0;    // its objects are about to go
  // It was stopped for `length` and is about to go on.
  virtual void on_resume(Process& process, Nanoseconds length) = 0;

  virtual void start() = 0;  // all processes run
  virtual bool done() const = 0;
  virtual std::string unfinished() const = 0;
  virtual void check() = 0;  // when done
};

}  // namespace be::sim
