#include "be/verbs/hardware/event_router.h"

#include "be/base/log.h"
#include "be/base/time.h"

namespace be::hardware {
namespace {

// The kernel tells of a removal while it takes the device apart.
constexpr auto kTakenApartAfter = 1s;

}  // namespace

void EventRouter::add_inbox(EventInbox* inbox) {
  std::lock_guard lock(mutex_);
  inboxes_.insert(inbox);
}

void EventRouter::remove_inbox(EventInbox* inbox) {
  std::lock_guard lock(mutex_);
  inboxes_.erase(inbox);
}

void EventRouter::add_cq(ibv_cq* cq, EventInbox* inbox) {
  std::lock_guard lock(mutex_);
  inbox_of_cq_[cq] = inbox;
}

void EventRouter::remove_cq(ibv_cq* cq) {
  std::lock_guard lock(mutex_);
  inbox_of_cq_.erase(cq);
  broken_.erase(cq);
}

void EventRouter::remove_srq(ibv_srq* srq) {
  std::lock_guard lock(mutex_);
  broken_.erase(srq);
}

void EventRouter::add_qp(ibv_qp* qp, const Member& member) {
  std::lock_guard lock(mutex_);
  members_[qp] = member;
}

EventRouter::Member EventRouter::remove_qp(ibv_qp* qp) {
  std::lock_guard lock(mutex_);
  const auto found = members_.find(qp);
  if (found == members_.end()) return {};
  const Member member = found->second;
  if (EventInbox* inbox = inbox_of(member)) inbox->drop(qp);
  members_.erase(found);
  return member;
}

EventInbox* EventRouter::inbox_of(const Member& member) const {
  const auto found = inbox_of_cq_.find(member.recv_cq);
  return found == inbox_of_cq_.end() ? nullptr : found->second;
}

void EventRouter::post_connected(ibv_qp* qp) {
  std::lock_guard lock(mutex_);
  to_qp(qp, DeviceEvent::Kind::kConnected, ok_status());
}

void EventRouter::to_qp(ibv_qp* qp, DeviceEvent::Kind kind, const Status& status) {
  const auto found = members_.find(qp);
  if (found == members_.end()) return;  // being destroyed
  EventInbox* inbox = inbox_of(found->second);
  if (inbox != nullptr) inbox->post({.kind = kind, .qp = qp, .status = status});
}

void EventRouter::route(const ibv_async_event& event) {
  std::lock_guard lock(mutex_);
  const Status status = error(Code::kDeviceError, "device {} reports {}", device_,
                              ibv_event_type_str(event.event_type));
  switch (event.event_type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_PATH_MIG_ERR:
      to_qp(event.element.qp, DeviceEvent::Kind::kQpFatal, status);
      break;
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      to_qp(event.element.qp, DeviceEvent::Kind::kLastWqeReached, status);
      break;
    case IBV_EVENT_CQ_ERR:  // it overran: what it held and what would come is lost
      if (inbox_of_cq_.count(event.element.cq) == 0) break;  // being destroyed
      broken_[event.element.cq] = status;
      for (const auto& [qp, member] : members_) {
        if (member.send_cq != event.element.cq && member.recv_cq != event.element.cq) continue;
        to_qp(qp, DeviceEvent::Kind::kQpFatal, status);
      }
      break;
    case IBV_EVENT_SRQ_ERR:
      broken_[event.element.srq] = status;
      for (const auto& [qp, member] : members_) {
        if (member.srq == event.element.srq) to_qp(qp, DeviceEvent::Kind::kQpFatal, status);
      }
      break;
    case IBV_EVENT_DEVICE_FATAL:
      lose(status);
      break;
    case IBV_EVENT_PORT_ERR:
      log_warn("{} of port {}", status.message(), event.element.port_num);
      break;
    default:
      log_info("{}", status.message());
  }
}

void EventRouter::lose_device(const Status& why) {
  std::lock_guard lock(mutex_);
  lose(why);
}

void EventRouter::lose(const Status& why) {
  if (!lost_.ok()) return;
  lost_ = why;
  lost_at_ = Clock::now();
  log_error("{}", why.message());
  for (EventInbox* inbox : inboxes_) {
    inbox->forget_device();
    inbox->post({.kind = DeviceEvent::Kind::kDeviceRemoved, .status = why});
  }
}

void EventRouter::take(EventInbox& inbox, std::vector<DeviceEvent>& out) {
  std::lock_guard lock(mutex_);
  inbox.take(out);
}

Status EventRouter::check(const ibv_cq* send_cq, const ibv_cq* recv_cq, const ibv_srq* srq) const {
  std::lock_guard lock(mutex_);
  if (!lost_.ok()) return lost_;
  for (const void* queue : {static_cast<const void*>(send_cq), static_cast<const void*>(recv_cq),
                            static_cast<const void*>(srq)}) {
    const auto found = broken_.find(queue);
    if (found != broken_.end()) return found->second;
  }
  return ok_status();
}

bool EventRouter::long_lost(Clock::time_point now) const {
  std::lock_guard lock(mutex_);
  return !lost_.ok() && now - lost_at_ >= kTakenApartAfter;
}

}  // namespace be::hardware
