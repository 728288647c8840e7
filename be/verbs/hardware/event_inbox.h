// Events for one I/O thread, and the descriptor that it sleeps on.
//
//   descriptors of the device           -> |
//   eventfd: something has been posted  -> | epoll: fd()
//
// The descriptors of a device that is gone stay readable for ever and would keep the thread awake:
// forget_device(). post, take and drop are called under the router's lock, the rest from any
// thread once all is watched.
#pragma once

#include <infiniband/verbs.h>

#include <memory>
#include <vector>

#include "be/base/status.h"
#include "be/base/unique_fd.h"
#include "be/verbs/device.h"

namespace be::hardware {

class EventInbox {
 public:
  static Result<std::unique_ptr<EventInbox>> create();

  int fd() const { return epoll_.get(); }
  Status watch(int device_fd);
  void forget_device();

  void post(DeviceEvent event);
  void take(std::vector<DeviceEvent>& out);
  void drop(const ibv_qp* qp);  // whatever of it has not been taken

 private:
  EventInbox() = default;
  Status wait_for(int fd);

  UniqueFd epoll_;
  UniqueFd signal_;  // readable: events_ is not empty
  std::vector<int> device_fds_;
  std::vector<DeviceEvent> events_;
};

}  // namespace be::hardware
