#include "be/verbs/hardware/event_channel.h"

#include <fcntl.h>

#include <cerrno>

#include "be/verbs/errors.h"

namespace be::hardware {

Status set_nonblocking(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) {
    return error_from_errno(errno, "making an RDMA event descriptor non-blocking");
  }
  return ok_status();
}

Result<std::unique_ptr<HardwareEventChannel>> HardwareEventChannel::create(ibv_context* context,
                                                                           EventRouter& router) {
  std::unique_ptr<HardwareEventChannel> channel(new HardwareEventChannel(context, router));
  channel->completions_.reset(ibv_create_comp_channel(context));
  if (!channel->completions_) {
    return verb_error("ibv_create_comp_channel", errno, ibv_get_device_name(context->device));
  }
  BE_RETURN_IF_ERROR(set_nonblocking(channel->completions_->fd));
  BE_ASSIGN_OR_RETURN(channel->inbox_, EventInbox::create());
  BE_RETURN_IF_ERROR(channel->inbox_->watch(channel->completions_->fd));
  BE_RETURN_IF_ERROR(channel->inbox_->watch(context->async_fd));
  router.add_inbox(channel->inbox_.get());
  return channel;
}

HardwareEventChannel::~HardwareEventChannel() {
  if (inbox_ != nullptr) router_.remove_inbox(inbox_.get());
}

void HardwareEventChannel::take_events(std::vector<DeviceEvent>& out) {
  ibv_cq* cq = nullptr;
  void* user = nullptr;
  while (ibv_get_cq_event(completions_.get(), &cq, &user) == 0) {
    ibv_ack_cq_events(cq, 1);
    out.push_back({.kind = DeviceEvent::Kind::kCompletion, .cq = cq, .status = {}});
  }
  read_async_events();
  router_.take(*inbox_, out);
}

// A queue pair that is being destroyed waits for its events to be acknowledged: until then no
// other has its address.
void HardwareEventChannel::read_async_events() {
  ibv_async_event event{};
  while (ibv_get_async_event(context_, &event) == 0) {
    router_.route(event);
    ibv_ack_async_event(&event);
  }
  if (errno == EIO) {
    router_.lose_device(
        error(Code::kDeviceError, "device {} is gone", ibv_get_device_name(context_->device)));
  }
}

}  // namespace be::hardware
