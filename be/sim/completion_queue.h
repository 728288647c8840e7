// Completion queue and event channel of the simulated RNIC.
//
//   core.push --settle()--> held back for a drawn time --> visible --> ibv_poll_cq
//                                                             '-- armed: event on the channel
//
// Armed while completions are visible but not polled, it raises no event for those, as hardware
// does not.
#pragma once

#include <infiniband/verbs.h>

#include <memory>
#include <vector>

#include "be/sim/fabric.h"
#include "be/sim/host.h"
#include "be/verbs/device.h"
#include "be/verbs/rc/completion_queue.h"

namespace be::sim {

class VirtualChannel final : public EventChannel {
 public:
  explicit VirtualChannel(Host& host);
  ~VirtualChannel() override;

  int fd() const override { return fd_; }
  void take_events(std::vector<DeviceEvent>& out) override;
  void push(const DeviceEvent& event);
  bool has_events() const { return !events_.empty(); }
  bool is_watched_by(const VirtualPoller& poller) const {
    return readiness_->is_watched_by(poller);
  }
  void forget(const ibv_qp* qp);  // it is destroyed: no more events of it

 private:
  struct Readiness final : Descriptor {
    bool readable() const override { return ready; }
    bool ready = false;
  };

  Host& host_;
  const std::shared_ptr<Readiness> readiness_;
  int fd_;
  std::vector<DeviceEvent> events_;
};

class CompletionQueue : public ibv_cq, public std::enable_shared_from_this<CompletionQueue> {
 public:
  CompletionQueue(Fabric& fabric, VirtualChannel& events, uint32_t entries)
      : ibv_cq{}, core(entries), fabric_(fabric), events_(events) {}

  void settle();  // after each use of the core: what was pushed becomes visible in its time
  int poll(int count, ibv_wc* completions);
  void arm();
  // Completions that a sleeper in `poller` does not see and is not told of.
  bool slept_over(const VirtualPoller& poller) const {
    return visible_ > 0 && !events_.has_events() && events_.is_watched_by(poller);
  }
  void drop(uint32_t qp_num);
  Time all_shown() const;  // when all that is kept now is visible
  VirtualChannel& events() { return events_; }

  rc::CompletionQueue core;
  uint32_t users = 0;

 private:
  void show_one();

  Fabric& fabric_;
  VirtualChannel& events_;
  uint32_t settled_ = 0;  // of core.size(), visible or on the way to it
  uint32_t visible_ = 0;  // <= settled_
  Time last_shown_{};
  bool armed_ = false;
};

}  // namespace be::sim
