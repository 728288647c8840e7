#include "be/sim/executor.h"

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "be/sim/host.h"

namespace be::sim {
namespace {

// The loop itself may live on in events after its owner is gone.
class LoopHandle final : public Loop {
 public:
  explicit LoopHandle(std::shared_ptr<VirtualLoop> loop) : loop_(std::move(loop)) {}
  ~LoopHandle() override { loop_->join(); }
  void join() override { loop_->join(); }

 private:
  const std::shared_ptr<VirtualLoop> loop_;
};

// Tasks start in their order, each on the thread that is free first, and take effect at their end.
class VirtualWorkers final : public WorkerPool {
 public:
  VirtualWorkers(Host& host, int threads)
      : state_(std::make_shared<State>(host, static_cast<size_t>(threads))) {}

  ~VirtualWorkers() override {
    while (state_->run_one()) {
    }
  }

  void submit(Task task) override { state_->submit(std::move(task), state_); }

 private:
  struct State {
    State(Host& on, size_t threads) : host(on), free_at(threads) {}

    void submit(Task task, const std::shared_ptr<State>& self) {
      Time& free = *std::min_element(free_at.begin(), free_at.end());
      Simulation& simulation = host.simulation();
      free = std::max(free, simulation.now()) + host.random().between(100ns, host.pace().task_max);
      const uint64_t number = first + tasks.size();
      tasks.push_back(std::move(task));
      simulation.at(free,
                    [self, number] { self->host.run([self, number] { self->run(number); }); });
    }

    void run(uint64_t number) {
      if (number < first || !tasks[number - first]) return;  // run by the destructor
      Task task = std::exchange(tasks[number - first], nullptr);
      while (!tasks.empty() && !tasks.front()) {
        tasks.pop_front();
        ++first;
      }
      host.simulation().note(Happening::kTask, host.index(), number, 0);
      task();
      if (host.after_step) host.after_step();
    }

    bool run_one() {
      if (tasks.empty()) return false;
      run(first);
      return true;
    }

    Host& host;
    std::vector<Time> free_at;
    std::deque<Task> tasks;  // null: has run
    uint64_t first = 0;      // number of tasks.front()
  };

  const std::shared_ptr<State> state_;
};

class VirtualGate final : public Gate {
 public:
  explicit VirtualGate(Simulation& simulation) : simulation_(simulation) {}
  void open() override { open_ = true; }
  void wait() override { simulation_.wait_for(open_, "a thread waits for another in vain"); }

 private:
  Simulation& simulation_;
  bool open_ = false;
};

}  // namespace

void VirtualLoop::start() {
  poller_.runs(this);
  arm(host_.simulation().now());
}

void VirtualLoop::arm(Time when) {
  due_ = when;
  host_.simulation().at(when, [self = shared_from_this(), number = ++armed_] {
    self->host_.run([self, number] {
      if (number == self->armed_ && !self->ended_) self->run_step();
    });
  });
}

void VirtualLoop::run_step() {
  Simulation& simulation = host_.simulation();
  due_ = kNever;
  sleeping_ = false;
  poller_.begin_step();
  const bool more = step_();
  simulation.note(Happening::kStep, host_.index(), more, 0);
  if (host_.after_step) host_.after_step();
  if (!more) {
    ended_ = true;
    poller_.runs(nullptr);
    return;
  }
  const Time ready = simulation.now() + next_delay();
  sleeping_ = poller_.sleeps_until() > ready && due_ == kNever;
  const Time next = due_ != kNever ? ready : std::max(ready, poller_.sleeps_until());
  if (next != kNever) arm(next);
  if (sleeping_ && host_.on_sleep) host_.on_sleep(poller_);
}

Nanoseconds VirtualLoop::next_delay() {
  const HostPace& pace = host_.pace();
  Nanoseconds delay = host_.random().between(pace.step_min, pace.step_max);
  if (pace.late_one_in != 0 && host_.random().one_in(pace.late_one_in)) {
    delay += host_.random().between(0ns, pace.late_max);
  }
  return delay;
}

// What changes while the loop is awake is seen by its next step anyway.
void VirtualLoop::wake() {
  if (ended_) return;
  if (sleeping_) {
    sleeping_ = false;
    arm(host_.simulation().now() + next_delay());
  } else if (due_ == kNever) {
    due_ = host_.simulation().now();  // from within the step: no sleep
  }
}

void VirtualLoop::join() { host_.simulation().wait_for(ended_, "a loop does not end"); }

Result<std::unique_ptr<Loop>> VirtualExecutor::start_loop(const std::string&, Poller& poller,
                                                          std::function<bool()> step) {
  auto loop =
      std::make_shared<VirtualLoop>(host_, static_cast<VirtualPoller&>(poller), std::move(step));
  loop->start();
  return std::unique_ptr<Loop>(std::make_unique<LoopHandle>(std::move(loop)));
}

Result<std::unique_ptr<WorkerPool>> VirtualExecutor::start_workers(const std::string&,
                                                                   int threads) {
  return std::unique_ptr<WorkerPool>(std::make_unique<VirtualWorkers>(host_, threads));
}

std::unique_ptr<Gate> VirtualExecutor::make_gate() {
  return std::make_unique<VirtualGate>(host_.simulation());
}

}  // namespace be::sim
