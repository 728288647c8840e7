// Host: one simulated process with a machine of its own: its World.
//
//   kRunning <--stop, go_on--> kStopped      (SIGSTOP, SIGCONT: its CPU does nothing meanwhile;
//       |                         |           kernel and NIC go on)
//       '---------kill------------'--> kDead (SIGKILL: its connections are closed, its QPs gone)
//   kDead --wall--> kWalled   the dead process' objects can be torn down like any other's, but
//                             nothing of it reaches anybody: all is reset, refused and broken
//
// Clock and events are the simulation's; loops, workers, descriptors are its own.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>

#include "be/base/world.h"
#include "be/sim/descriptor.h"
#include "be/sim/executor.h"
#include "be/sim/network.h"
#include "be/sim/simulation.h"

namespace be::sim {

// How fast the host's CPU is, and how often it is late.
struct HostPace {
  Nanoseconds step_min = 200ns;  // one iteration of a loop
  Nanoseconds step_max = 2us;
  Nanoseconds task_max = 20us;  // one task of a worker
  uint64_t late_one_in = 0;     // steps are late by up to late_max; 0: never
  Nanoseconds late_max = 0ns;
};

class Host final : public World {
 public:
  enum class State : uint8_t { kRunning, kStopped, kDead, kWalled };

  Host(Simulation& simulation, Internet& internet, uint32_t index, const HostPace& pace);
  ~Host() override;

  // --- World
  Clock& clock() override { return simulation_; }
  Executor& executor() override { return executor_; }
  StreamNetwork& network() override { return network_; }
  Result<std::unique_ptr<Poller>> make_poller() override;
  void random_bytes(std::span<uint8_t> out) override;

  Simulation& simulation() { return simulation_; }
  uint32_t index() const { return index_; }
  Address address(uint16_t port) const;  // 10.0.0.<index + 1>
  State state() const { return state_; }
  bool runs() const { return state_ == State::kRunning || state_ == State::kWalled; }
  const HostPace& pace() const { return pace_; }
  Random& random() { return random_; }

  // What this host's CPU does: now, or when it goes on (a dead one behind its wall).
  void run(Task action);

  void stop();
  void go_on();
  void kill();
  void wall();

  // --- Descriptors
  int open(std::shared_ptr<Descriptor> descriptor);
  Descriptor* find(int fd) const;
  void close(int fd);

  // Called after each step of a loop and each task of a worker.
  std::function<void()> after_step;
  // Called when a loop goes to sleep in this poller.
  std::function<void(const VirtualPoller& poller)> on_sleep;

 private:
  Simulation& simulation_;
  const uint32_t index_;
  const HostPace pace_;
  State state_ = State::kRunning;
  Random random_;
  std::deque<Task> held_;  // what the CPU does when it goes on
  std::map<int, std::shared_ptr<Descriptor>> descriptors_;
  int next_descriptor_ = 1000;
  VirtualExecutor executor_;
  VirtualNetwork network_;
};

}  // namespace be::sim
