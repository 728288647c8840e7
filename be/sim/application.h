// The application of a seed: on each process a listener, and ends of conversations that send,
// receive, hold, pause and close as the seed says.
//
// Runs on the I/O threads of the simulated nodes, through the public API of Socket only. Beside
// the conversations it keeps canaries: Buffers of its own with a pattern, looked at and replaced
// again and again. A late write into memory that was given back too early hits one of them, a
// held message, or a message under way.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "be/sim/conversation.h"
#include "be/sim/workload.h"

namespace be::sim {

class ConversationEnd;

// What one conversation will be.
struct Plan {
  explicit Plan(Random draws) : random(draws) {}

  std::unique_ptr<Conversation> model;
  uint32_t processes[2] = {};
  uint32_t incarnations[2] = {};
  uint32_t messages[2] = {};        // of each side
  uint32_t break_off = UINT32_MAX;  // the breaking side closes when so many were delivered to it
  Side breaker = kConnecting;
  Random random;
  ConversationEnd* ends[2] = {};
  bool began = false;
};

class Application final : public Workload {
 public:
  explicit Application(Cluster& cluster);
  ~Application() override;

  void on_start(Process& process) override;
  void on_end(Process& process) override;
  void on_resume(Process& process, Nanoseconds length) override;
  void start() override;       // the conversations, at times of their own
  bool done() const override;  // every conversation is over
  std::string unfinished() const override;
  void check() override;

  void on_broken(Process& process);  // one of its sockets was closed by a failure
  const Work& work() const { return work_; }
  Simulation& simulation() { return simulation_; }
  Plan* find(uint32_t number);  // null: there is none

 private:
  class Canary;  // a buffer that nobody else may write to

  void begin(Plan& plan);
  bool side_has_ended(const Plan& plan, Side side) const;
  bool over(const Plan& plan) const;

  Cluster& cluster_;
  Simulation& simulation_;
  const Work work_;
  std::vector<std::unique_ptr<Plan>> plans_;
  std::vector<std::unique_ptr<ConversationEnd>> ends_;
  std::map<Process*, std::unique_ptr<Listener>> listeners_;            // looked up only
  std::map<Process*, std::vector<std::unique_ptr<Canary>>> canaries_;  // likewise
  Random random_;
};

}  // namespace be::sim
