// Executor in virtual time: loops and workers of one Host are events of its simulation.
//
//   a step of a loop  ->  if its Poller sleeps: the next at that time or when woken
//                         else after the time that a step takes (HostPace), at times late
//
// Waiting (join, Gate::wait) is for the outside of all events: it steps the simulation.
#pragma once

#include <memory>

#include "be/base/executor.h"
#include "be/sim/poller.h"

namespace be::sim {

class VirtualLoop final : public Loop, public std::enable_shared_from_this<VirtualLoop> {
 public:
  VirtualLoop(Host& host, VirtualPoller& poller, std::function<bool()> step)
      : host_(host), poller_(poller), step_(std::move(step)) {}

  void start();
  void join() override;
  void wake();

 private:
  void arm(Time when);
  void run_step();
  Nanoseconds next_delay();

  Host& host_;
  VirtualPoller& poller_;
  std::function<bool()> step_;
  Time due_ = kNever;   // of the next step
  uint64_t armed_ = 0;  // counts arm(): an event of an earlier one does nothing
  bool sleeping_ = false;
  bool ended_ = false;
};

class VirtualExecutor final : public Executor {
 public:
  explicit VirtualExecutor(Host& host) : host_(host) {}

  Result<std::unique_ptr<Loop>> start_loop(const std::string& name, Poller& poller,
                                           std::function<bool()> step) override;
  Result<std::unique_ptr<WorkerPool>> start_workers(const std::string& name, int threads) override;
  std::unique_ptr<Gate> make_gate() override;

 private:
  Host& host_;
};

}  // namespace be::sim
