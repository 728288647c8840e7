#include "be/sim/cluster.h"

#include <algorithm>
#include <utility>

namespace be::sim {

Cluster::Cluster(Simulation& simulation, const Knobs& knobs)
    : simulation_(simulation), knobs_(knobs), fabric_(simulation, knobs.fabric) {
  internet_.latency = knobs.stream_latency;
}

Cluster::~Cluster() = default;

std::unique_ptr<Process> Cluster::make(uint32_t index, uint32_t incarnation) {
  const HostKnobs& knobs = knobs_.hosts[index];
  auto process = std::make_unique<Process>();
  process->index = index;
  process->incarnation = incarnation;
  process->running_since = simulation_.now();
  process->host = std::make_unique<Host>(simulation_, internet_, index, knobs.pace);
  std::vector<std::unique_ptr<Device>> devices;
  if (knobs.node.transport != TransportChoice::kTcp) {
    auto device = std::make_unique<RnicDevice>(*process->host, fabric_);
    process->device = device.get();
    devices.push_back(std::move(device));
  }
  auto node = Node::create(*process->host, knobs.node, std::move(devices));
  if (!node.ok()) {
    simulation_.violate("Node::create: " + node.status().to_string());
    return process;
  }
  process->node = *std::move(node);
  process->host->after_step = [this, made = process.get()] {
    const char* broken = made->node == nullptr ? nullptr : made->node->broken_invariant();
    if (broken != nullptr) {
      simulation_.violate(fmt::format("host {}: does not hold: {}", made->index, broken));
    }
  };
  process->host->on_sleep = [this, made = process.get()](const VirtualPoller& poller) {
    if (made->node == nullptr || made->device == nullptr) return;
    if (!made->device->slept_over(poller)) return;
    simulation_.violate(fmt::format("host {} sleeps, and a completion is there", made->index));
  };
  return process;
}

void Cluster::start_all() {
  for (uint32_t i = 0; i < knobs_.hosts.size(); ++i) {
    processes_.push_back(make(i, 0));
    if (!simulation_.violation().empty()) return;
    if (on_start) on_start(*processes_.back());
  }
  for (const Fault& fault : knobs_.faults) {
    schedule({simulation_.now() + fault.when, fault.host, fault.kind, false, fault.length,
              fault.work_requests});
  }
}

void Cluster::schedule(const Action& action) {
  const auto later =
      std::upper_bound(actions_.begin(), actions_.end(), action,
                       [](const Action& a, const Action& b) { return a.when < b.when; });
  actions_.insert(later, action);
}

bool Cluster::run_until(const std::function<bool()>& done, Time deadline) {
  for (;;) {
    const bool action_next = !actions_.empty() && actions_.front().when <= deadline;
    const Time until = action_next ? actions_.front().when : deadline;
    if (simulation_.run_until([&] { return done() && !action_next; }, until)) return true;
    if (!simulation_.violation().empty() || !action_next) return false;
    const Action action = actions_.front();
    actions_.erase(actions_.begin());
    apply(action);
  }
}

void Cluster::apply(const Action& action) {
  Process& process = *processes_[action.host];
  Host& host = *process.host;
  simulation_.note(Happening::kFault, action.host, static_cast<uint64_t>(action.kind),
                   action.second);
  Action second = action;
  second.second = true;
  second.when = simulation_.now() + action.length;
  switch (action.kind) {
    case Fault::Kind::kPause:
    case Fault::Kind::kStop:
      if (action.second) return go_on(process);
      if (host.state() != Host::State::kRunning) return;
      if (action.kind == Fault::Kind::kStop) process.faulty = true;
      host.stop();
      process.stopped_at = simulation_.now();
      return schedule(second);
    case Fault::Kind::kKill:
    case Fault::Kind::kKillAndStart:
      if (action.second) {
        dead_.push_back(std::move(processes_[action.host]));
        processes_[action.host] = make(action.host, dead_.back()->incarnation + 1);
        processes_[action.host]->faulty = true;
        if (on_start && simulation_.violation().empty()) on_start(*processes_[action.host]);
        return;
      }
      if (host.state() == Host::State::kDead) return;
      kill(action.host);
      if (action.kind == Fault::Kind::kKillAndStart) schedule(second);
      return;
    case Fault::Kind::kWorkRequest:
      if (process.device == nullptr || host.state() == Host::State::kDead) return;
      // Whoever talks to it may see the engine end.
      process.faulty = true;
      return process.device->fail_after(action.work_requests);
    case Fault::Kind::kQueuePairs:
      if (process.device == nullptr || host.state() == Host::State::kDead) return;
      process.faulty = true;
      return process.device->break_queue_pairs(error(Code::kDeviceError, "IBV_EVENT_QP_FATAL"));
  }
}

void Cluster::go_on(Process& process) {
  if (process.host->state() != Host::State::kStopped) return;
  if (on_resume) on_resume(process, simulation_.now() - process.stopped_at);
  process.running_since = simulation_.now();
  process.host->go_on();
}

void Cluster::kill(uint32_t index) {
  Process& process = *processes_[index];
  process.faulty = true;
  process.host->kill();
  if (process.device != nullptr) process.device->on_host_killed();
}

void Cluster::end(Process& process) {
  if (on_end) on_end(process);
  const uint64_t window = process.node->options().engine.send_window_bytes;
  if (process.device != nullptr && window != 0 && process.device->most_written() > window) {
    simulation_.violate(fmt::format("host {} had {} bytes on their way, its window is {}",
                                    process.index, process.device->most_written(), window));
  }
  process.node.reset();
}

void Cluster::tear_down() {
  for (const auto& process : processes_) {
    process->host->go_on();
    if (process->host->state() != Host::State::kDead) end(*process);
  }
  for (auto& process : processes_) {
    if (process->host->state() == Host::State::kDead) dead_.push_back(std::move(process));
  }
  for (const auto& process : dead_) {
    process->host->wall();
    if (process->device != nullptr) process->device->on_host_walled();
    end(*process);
  }
}

}  // namespace be::sim
