// Whom an asynchronous event of a device concerns, and who is to hear of it.
//
//   event                                      heard by
//   QP_FATAL, QP_REQ_ERR, QP_ACCESS_ERR,       that queue pair: kQpFatal
//     PATH_MIG_ERR
//   CQ_ERR, SRQ_ERR                            each queue pair of that queue: kQpFatal; the queue
//                                              takes no new one
//   QP_LAST_WQE_REACHED                        that queue pair: kLastWqeReached
//   DEVICE_FATAL, the end of its descriptor    every inbox, once: kDeviceRemoved; the device takes
//                                              nothing new
//   PORT_ERR                                   nobody, it is logged: retries outlast a short loss,
//                                              a longer one ends each queue pair by RETRY_EXC, and
//                                              in a bond another port may go on
//   others (addresses, a port that is back)    nobody, they are logged
//
// Shared by all threads of a device; locks. What is added must be removed before it is destroyed.
#pragma once

#include <infiniband/verbs.h>

#include <chrono>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "be/base/status.h"
#include "be/verbs/device.h"
#include "be/verbs/hardware/event_inbox.h"

namespace be::hardware {

class EventRouter {
 public:
  using Clock = std::chrono::steady_clock;

  // Whose work a queue pair takes part in.
  struct Member {
    ibv_cq* send_cq = nullptr;
    ibv_cq* recv_cq = nullptr;
    ibv_srq* srq = nullptr;
  };

  explicit EventRouter(std::string device) : device_(std::move(device)) {}

  void add_inbox(EventInbox* inbox);
  void remove_inbox(EventInbox* inbox);
  void add_cq(ibv_cq* cq, EventInbox* inbox);  // null: its events are dropped
  void remove_cq(ibv_cq* cq);
  void remove_srq(ibv_srq* srq);
  void add_qp(ibv_qp* qp, const Member& member);
  Member remove_qp(ibv_qp* qp);  // and whatever of it has not been taken

  void post_connected(ibv_qp* qp);  // to the inbox of its recv_cq
  void route(const ibv_async_event& event);
  void lose_device(const Status& why);
  void take(EventInbox& inbox, std::vector<DeviceEvent>& out);

  // Why no queue pair can be made on these queues (null: none of that kind), if none can.
  Status check(const ibv_cq* send_cq, const ibv_cq* recv_cq, const ibv_srq* srq) const;

  // Whether the device has been gone for so long that the kernel has taken everything from it:
  // verbs that destroy fail from then on, and nothing is left that they could end.
  bool long_lost(Clock::time_point now) const;

 private:
  EventInbox* inbox_of(const Member& member) const;
  void to_qp(ibv_qp* qp, DeviceEvent::Kind kind, const Status& status);
  void lose(const Status& why);

  const std::string device_;
  mutable std::mutex mutex_;  // the rest
  std::unordered_set<EventInbox*> inboxes_;
  std::unordered_map<ibv_cq*, EventInbox*> inbox_of_cq_;
  std::unordered_map<ibv_qp*, Member> members_;
  std::unordered_map<const void*, Status> broken_;  // CQs and SRQs
  Status lost_;
  Clock::time_point lost_at_;
};

}  // namespace be::hardware
