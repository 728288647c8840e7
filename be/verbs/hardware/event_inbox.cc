#include "be/verbs/hardware/event_inbox.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <utility>

namespace be::hardware {

Result<std::unique_ptr<EventInbox>> EventInbox::create() {
  std::unique_ptr<EventInbox> inbox(new EventInbox());
  inbox->signal_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  inbox->epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!inbox->signal_.valid() || !inbox->epoll_.valid()) {
    return error_from_errno(errno, "making descriptors for RDMA events");
  }
  BE_RETURN_IF_ERROR(inbox->wait_for(inbox->signal_.get()));
  return inbox;
}

Status EventInbox::wait_for(int fd) {
  epoll_event interest{.events = EPOLLIN, .data = {.fd = fd}};
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &interest) != 0) {
    return error_from_errno(errno, "waiting for RDMA events");
  }
  return ok_status();
}

Status EventInbox::watch(int device_fd) {
  BE_RETURN_IF_ERROR(wait_for(device_fd));
  device_fds_.push_back(device_fd);
  return ok_status();
}

void EventInbox::forget_device() {
  for (const int fd : device_fds_) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

void EventInbox::post(DeviceEvent event) {
  events_.push_back(std::move(event));
  ::eventfd_write(signal_.get(), 1);
}

void EventInbox::take(std::vector<DeviceEvent>& out) {
  if (events_.empty()) return;
  eventfd_t signals = 0;
  ::eventfd_read(signal_.get(), &signals);
  for (DeviceEvent& event : events_) out.push_back(std::move(event));
  events_.clear();
}

void EventInbox::drop(const ibv_qp* qp) {
  std::erase_if(events_, [qp](const DeviceEvent& event) { return event.qp == qp; });
}

}  // namespace be::hardware
