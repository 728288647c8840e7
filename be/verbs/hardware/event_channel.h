// Events of a device, each delivered on the channel that waits for it.
//
//   completion channel, one each      -> |
//   async descriptor, shared by all    -> | epoll: fd()
//   eventfd: routed to us by another   -> |
//
// Async events are read by whoever looks first, and routed by their QP or CQ.
// Taking an event acknowledges it, so that destroying a CQ or QP never waits for us. A channel
// belongs to one I/O thread; the router is shared by all of a device and locks.
#pragma once

#include <infiniband/verbs.h>

#include <memory>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "be/base/status.h"
#include "be/base/unique_fd.h"
#include "be/verbs/device.h"

namespace be::hardware {

class HardwareEventChannel;

// Knows which channel waits for what. Everything named must be removed before it is destroyed.
class EventRouter {
 public:
  explicit EventRouter(ibv_context* context) : context_(context) {}

  void add_channel(HardwareEventChannel* channel);
  void remove_channel(HardwareEventChannel* channel);
  void add_cq(ibv_cq* cq, HardwareEventChannel* channel);  // null: its events are dropped
  void remove_cq(ibv_cq* cq);
  void add_qp(ibv_qp* qp, ibv_cq* recv_cq);
  void remove_qp(ibv_qp* qp);  // and whatever of it has not been taken

  void post_connected(ibv_qp* qp);  // to its channel
  void read_async_events();         // takes all from the device and routes them
  void take(HardwareEventChannel& channel, std::vector<DeviceEvent>& out);

 private:
  void route(const ibv_async_event& event);
  void deliver(HardwareEventChannel* channel, DeviceEvent event);

  ibv_context* const context_;
  std::mutex mutex_;
  std::unordered_set<HardwareEventChannel*> channels_;
  std::unordered_map<ibv_cq*, HardwareEventChannel*> channel_of_cq_;
  std::unordered_map<ibv_qp*, HardwareEventChannel*> channel_of_qp_;
};

class HardwareEventChannel : public EventChannel {
 public:
  static Result<std::unique_ptr<HardwareEventChannel>> create(ibv_context* context,
                                                              EventRouter& router);
  ~HardwareEventChannel() override;

  int fd() const override { return epoll_.get(); }
  void take_events(std::vector<DeviceEvent>& out) override;

  ibv_comp_channel* completions() const { return completions_.get(); }

 private:
  friend class EventRouter;

  struct DestroyCompletions {
    void operator()(ibv_comp_channel* channel) const { ibv_destroy_comp_channel(channel); }
  };

  explicit HardwareEventChannel(EventRouter& router) : router_(router) {}

  EventRouter& router_;
  std::unique_ptr<ibv_comp_channel, DestroyCompletions> completions_;
  UniqueFd epoll_;
  UniqueFd routed_signal_;           // eventfd: routed_ is not empty
  std::vector<DeviceEvent> routed_;  // under the router's lock
};

// ibv_get_cq_event and ibv_get_async_event must return when there is nothing.
Status set_nonblocking(int fd);

}  // namespace be::hardware
