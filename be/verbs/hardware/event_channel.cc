#include "be/verbs/hardware/event_channel.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "be/base/log.h"
#include "be/verbs/errors.h"

namespace be::hardware {

Status set_nonblocking(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) {
    return error_from_errno(errno, "making an RDMA event descriptor non-blocking");
  }
  return ok_status();
}

void EventRouter::add_channel(HardwareEventChannel* channel) {
  std::lock_guard lock(mutex_);
  channels_.insert(channel);
}

void EventRouter::remove_channel(HardwareEventChannel* channel) {
  std::lock_guard lock(mutex_);
  channels_.erase(channel);
}

void EventRouter::add_cq(ibv_cq* cq, HardwareEventChannel* channel) {
  std::lock_guard lock(mutex_);
  channel_of_cq_[cq] = channel;
}

void EventRouter::remove_cq(ibv_cq* cq) {
  std::lock_guard lock(mutex_);
  channel_of_cq_.erase(cq);
}

void EventRouter::add_qp(ibv_qp* qp, ibv_cq* recv_cq) {
  std::lock_guard lock(mutex_);
  channel_of_qp_[qp] = channel_of_cq_[recv_cq];
}

void EventRouter::remove_qp(ibv_qp* qp) {
  std::lock_guard lock(mutex_);
  const auto found = channel_of_qp_.find(qp);
  if (found == channel_of_qp_.end()) return;
  if (found->second != nullptr) {
    std::erase_if(found->second->routed_, [&](const DeviceEvent& event) { return event.qp == qp; });
  }
  channel_of_qp_.erase(found);
}

void EventRouter::post_connected(ibv_qp* qp) {
  std::lock_guard lock(mutex_);
  deliver(channel_of_qp_[qp], {.kind = DeviceEvent::Kind::kConnected, .qp = qp, .status = {}});
}

void EventRouter::read_async_events() {
  std::lock_guard lock(mutex_);
  ibv_async_event event{};
  while (ibv_get_async_event(context_, &event) == 0) {
    route(event);
    ibv_ack_async_event(&event);
  }
}

void EventRouter::take(HardwareEventChannel& channel, std::vector<DeviceEvent>& out) {
  std::lock_guard lock(mutex_);
  if (channel.routed_.empty()) return;
  eventfd_t signals = 0;
  ::eventfd_read(channel.routed_signal_.get(), &signals);
  for (DeviceEvent& event : channel.routed_) out.push_back(std::move(event));
  channel.routed_.clear();
}

void EventRouter::route(const ibv_async_event& event) {
  const Status status =
      error(Code::kDeviceError, "device {} reports {}", ibv_get_device_name(context_->device),
            ibv_event_type_str(event.event_type));
  const auto to_qp = [&](DeviceEvent::Kind kind) {
    const auto found = channel_of_qp_.find(event.element.qp);
    if (found == channel_of_qp_.end()) return;  // being destroyed
    deliver(found->second, {.kind = kind, .qp = event.element.qp, .status = status});
  };
  switch (event.event_type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_PATH_MIG_ERR:
      to_qp(DeviceEvent::Kind::kQpFatal);
      break;
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      to_qp(DeviceEvent::Kind::kLastWqeReached);
      break;
    case IBV_EVENT_CQ_ERR: {  // a CQ that overran carries no completion any more: all is lost
      const auto found = channel_of_cq_.find(event.element.cq);
      if (found == channel_of_cq_.end()) break;
      deliver(found->second, {.kind = DeviceEvent::Kind::kDeviceRemoved, .status = status});
      break;
    }
    case IBV_EVENT_DEVICE_FATAL:
      for (HardwareEventChannel* channel : channels_) {
        deliver(channel, {.kind = DeviceEvent::Kind::kDeviceRemoved, .status = status});
      }
      break;
    case IBV_EVENT_PORT_ERR:  // shows in retries, and may be over before they end
      log_warn("{}", status.message());
      break;
    default:  // addresses that came or went, a port that is back
      log_info("{}", status.message());
  }
}

void EventRouter::deliver(HardwareEventChannel* channel, DeviceEvent event) {
  if (channel == nullptr) return;
  channel->routed_.push_back(std::move(event));
  ::eventfd_write(channel->routed_signal_.get(), 1);
}

Result<std::unique_ptr<HardwareEventChannel>> HardwareEventChannel::create(ibv_context* context,
                                                                           EventRouter& router) {
  std::unique_ptr<HardwareEventChannel> channel(new HardwareEventChannel(router));
  channel->completions_.reset(ibv_create_comp_channel(context));
  if (!channel->completions_) {
    return verb_error("ibv_create_comp_channel", errno, ibv_get_device_name(context->device));
  }
  BE_RETURN_IF_ERROR(set_nonblocking(channel->completions_->fd));
  channel->routed_signal_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  channel->epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!channel->routed_signal_.valid() || !channel->epoll_.valid()) {
    return error_from_errno(errno, "making descriptors for RDMA events");
  }
  for (int fd : {channel->completions_->fd, context->async_fd, channel->routed_signal_.get()}) {
    epoll_event interest{.events = EPOLLIN, .data = {.fd = fd}};
    if (::epoll_ctl(channel->epoll_.get(), EPOLL_CTL_ADD, fd, &interest) != 0) {
      return error_from_errno(errno, "waiting for RDMA events");
    }
  }
  router.add_channel(channel.get());
  return channel;
}

HardwareEventChannel::~HardwareEventChannel() { router_.remove_channel(this); }

void HardwareEventChannel::take_events(std::vector<DeviceEvent>& out) {
  ibv_cq* cq = nullptr;
  void* user = nullptr;
  while (ibv_get_cq_event(completions_.get(), &cq, &user) == 0) {
    ibv_ack_cq_events(cq, 1);
    out.push_back({.kind = DeviceEvent::Kind::kCompletion, .cq = cq, .status = {}});
  }
  router_.read_async_events();
  router_.take(*this, out);
}

}  // namespace be::hardware
