// What one I/O thread waits on: completions of its CQs, asynchronous events of the device.
//
//   completion channel, one each      -> |
//   async descriptor, shared by all   -> | EventInbox: fd()
//   routed to us by another thread    -> |
//
// Async events are read by whoever looks first, and routed (event_router.h). Taking an event
// acknowledges it, so that destroying a CQ or QP never waits for us. Belongs to one I/O thread.
#pragma once

#include <infiniband/verbs.h>

#include <memory>
#include <vector>

#include "be/base/status.h"
#include "be/verbs/device.h"
#include "be/verbs/hardware/event_inbox.h"
#include "be/verbs/hardware/event_router.h"

namespace be::hardware {

class HardwareEventChannel : public EventChannel {
 public:
  static Result<std::unique_ptr<HardwareEventChannel>> create(ibv_context* context,
                                                              EventRouter& router);
  ~HardwareEventChannel() override;

  int fd() const override { return inbox_->fd(); }
  void take_events(std::vector<DeviceEvent>& out) override;

  ibv_comp_channel* completions() const { return completions_.get(); }
  EventInbox* inbox() const { return inbox_.get(); }

 private:
  struct DestroyCompletions {
    void operator()(ibv_comp_channel* channel) const { ibv_destroy_comp_channel(channel); }
  };

  HardwareEventChannel(ibv_context* context, EventRouter& router)
      : context_(context), router_(router) {}
  void read_async_events();

  ibv_context* const context_;
  EventRouter& router_;
  std::unique_ptr<ibv_comp_channel, DestroyCompletions> completions_;
  std::unique_ptr<EventInbox> inbox_;
};

// ibv_get_cq_event and ibv_get_async_event must return when there is nothing.
Status set_nonblocking(int fd);

}  // namespace be::hardware
