// Cluster: the simulated processes of one seed, and what happens to them.
//
// A process is a Host with a Node on it. Killed, its objects stay until the end, when they are
// torn down behind a wall (host.h); started again, it is another Host with the same address.
// Everything here runs outside of all events, so it may wait (Gate, join).
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "be/sim/device.h"
#include "be/sim/knobs.h"

namespace be::sim {

struct Process {
  uint32_t index = 0;
  uint32_t incarnation = 0;
  std::unique_ptr<Host> host;
  RnicDevice* device = nullptr;  // the node's
  std::unique_ptr<Node> node;
  bool faulty = false;  // something was done to it that its peers may notice
  Time running_since{};
  Time stopped_at{};
  bool alive() const { return host->state() == Host::State::kRunning; }
};

class Cluster {
 public:
  Cluster(Simulation& simulation, const Knobs& knobs);
  ~Cluster();

  Simulation& simulation() { return simulation_; }
  const Knobs& knobs() const { return knobs_; }
  size_t size() const { return processes_.size(); }
  Process& at(size_t index) { return *processes_[index]; }

  // Told, outside of all events, of each process that has started (again), and of each whose
  // objects are about to go.
  std::function<void(Process&)> on_start;
  std::function<void(Process&)> on_end;
  // It was stopped for so long, and is about to go on.
  std::function<void(Process&, Nanoseconds length)> on_resume;

  void start_all();
  // Runs until `done` or the deadline, and all faults on the way. True: done, no violation.
  bool run_until(const std::function<bool()>& done, Time deadline);
  bool faults_over() const { return actions_.empty(); }
  void tear_down();

 private:
  struct Action {
    Time when;
    uint32_t host;
    Fault::Kind kind;
    bool second;  // the end of a stop, the start after a kill
    Nanoseconds length;
    uint64_t work_requests;
  };

  std::unique_ptr<Process> make(uint32_t index, uint32_t incarnation);
  void apply(const Action& action);
  void go_on(Process& process);
  void kill(uint32_t index);
  void schedule(const Action& action);
  void end(Process& process);

  Simulation& simulation_;
  const Knobs knobs_;
  Internet internet_;
  Fabric fabric_;
  std::vector<std::unique_ptr<Process>> processes_;
  std::vector<std::unique_ptr<Process>> dead_;
  std::vector<Action> actions_;  // in order of time
};

}  // namespace be::sim
