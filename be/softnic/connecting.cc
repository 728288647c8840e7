// The part of Channel that connects queue pairs: offers, visitors, attachment (rendezvous.h).
#include <sys/epoll.h>
#include <sys/socket.h>

#include <bit>
#include <cstring>

#include "be/base/failpoint.h"
#include "be/base/log.h"
#include "be/softnic/channel.h"
#include "be/softnic/device.h"
#include "be/softnic/queue_pair.h"

namespace be::softnic {
namespace {

constexpr auto kConnectTime = std::chrono::seconds(5);
constexpr auto kRetryAfter = std::chrono::milliseconds(5);
constexpr size_t kMaxVisitors = 1024;

}  // namespace

Status Channel::connect(QueuePair& qp, const Endpoint& remote, bool initiator) {
  if (qp.link != QueuePair::Link::kIdle || qp.core.state() != IBV_QPS_INIT) {
    return error(Code::kInvalidArgument, "softnic: QP {} is connected already", qp.core.number());
  }
  if (remote.send_depth == 0 || remote.send_depth > kMaxQueueDepth) {
    return error(Code::kProtocol, "softnic: the peer's send depth {} is impossible",
                 remote.send_depth);
  }
  const uint32_t depth = std::bit_ceil(remote.send_depth);
  BE_ASSIGN_OR_RETURN(qp.ring, device_->control().allocate_ring(depth));
  BE_FAILPOINT("softnic.connect.ring_allocated");
  qp.ring_depth = depth;
  qp.ring_mask = depth - 1;
  qp.remote = remote;
  qp.deadline = Clock::now() + kConnectTime;
  wake_at(qp.deadline);
  if (initiator) {
    qp.link = QueuePair::Link::kRetryConnect;
    start_connecting(qp);
    return {};
  }
  qp.link = QueuePair::Link::kAwaitHello;
  for (size_t i = 0; i < visitors_.size(); ++i) {
    if (visitors_[i]->parked && match(visitors_[i].get())) break;
  }
  return {};
}

void Channel::start_connecting(QueuePair& qp) {
  Result<UniqueFd> socket = connect_abstract(qp.remote.socket_name);
  if (!socket.ok()) {
    if (socket.status().code() == Code::kResourceExhausted) {
      wake_at(Clock::now() + kRetryAfter);
      return;
    }
    return fail_connecting(qp, socket.status());
  }
  qp.socket = std::move(socket).value();
  BE_FAILPOINT("softnic.connect.socket_connected");
  Status status = peer_process(qp.socket.get()).status();
  if (status.ok()) status = send_offer(qp, PacketKind::kHello, qp.token);
  BE_FAILPOINT("softnic.connect.hello_sent");
  if (status.ok()) status = add_source(qp.socket.get(), &qp.source);
  if (!status.ok()) return fail_connecting(qp, status);
  qp.link = QueuePair::Link::kAwaitAccept;
}

Status Channel::send_offer(QueuePair& qp, PacketKind kind, const uint8_t* token_half) {
  ControlMemory& control = device_->control();
  Packet packet;
  packet.kind = kind;
  std::memcpy(packet.token_half, token_half, kTokenHalf);
  packet.target_qp = qp.remote.qp_number;
  packet.own_qp = qp.core.number();
  packet.instance = device_->instance();
  packet.channel = id_;
  packet.control_size = control.size();
  packet.regions_offset = control.offset_of(control.regions());
  packet.ring_offset = control.offset_of(qp.ring);
  packet.ring_depth = qp.ring_depth;
  packet.block_offset = control.offset_of(qp.block);
  packet.recv_bell_offset = control.offset_of(qp.recv_queue->bell);
  packet.recv_bit = qp.recv_bit;
  packet.send_bell_offset = control.offset_of(qp.send_queue->bell);
  packet.send_bit = qp.send_bit;
  packet.same_cq = qp.send_queue == qp.recv_queue;
  UniqueFd data;
  device_->describe_data(&data, &packet.data_size);
  qp.data_offered = data.valid();
  const int fds[3] = {control.fd(), event_.get(), data.get()};
  return send_packet(qp.socket.get(), packet, fds);
}

void Channel::accept_visitors() {
  for (;;) {
    UniqueFd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.valid()) return;
    BE_FAILPOINT("softnic.accept.visitor_accepted");
    Result<PeerProcess> process = peer_process(socket.get());
    if (!process.ok()) {
      log_warn("{}", process.status().message());
      continue;
    }
    if (visitors_.size() >= kMaxVisitors) {
      log_warn("softnic: too many peers connect at once, one is refused");
      continue;
    }
    auto visitor = std::make_unique<Visitor>();
    visitor->socket = std::move(socket);
    visitor->process = std::move(process).value();
    visitor->deadline = Clock::now() + kConnectTime;
    if (!add_source(visitor->socket.get(), &visitor->source).ok()) continue;
    wake_at(visitor->deadline);
    visitors_.push_back(std::move(visitor));
  }
}

void Channel::on_visitor(Visitor* visitor) {
  if (visitor->parked) return drop(visitor);  // whatever it is, it has given up
  const ReceiveResult result =
      receive_packet(visitor->socket.get(), &visitor->hello, &visitor->fds);
  if (result == ReceiveResult::kNothing) return;
  if (result != ReceiveResult::kPacket || visitor->hello.kind != PacketKind::kHello) {
    if (result != ReceiveResult::kClosed) log_warn("softnic: malformed packet from a visitor");
    return drop(visitor);
  }
  BE_FAILPOINT("softnic.accept.hello_received");
  visitor->parked = true;
  match(visitor);
}

bool Channel::match(Visitor* visitor) {
  for (QueuePair* qp : qps_) {
    if (qp->core.number() != visitor->hello.target_qp || qp->link != QueuePair::Link::kAwaitHello ||
        qp->core.in_error()) {
      continue;
    }
    if (std::memcmp(visitor->hello.token_half, qp->token, kTokenHalf) != 0) {
      log_warn("softnic: QP {}: a visitor presents the wrong token", qp->core.number());
      drop(visitor);
      return true;
    }
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, visitor->socket.get(), nullptr);
    const Packet hello = visitor->hello;
    PacketFds fds = std::move(visitor->fds);
    PeerProcess process = std::move(visitor->process);
    qp->socket = std::move(visitor->socket);
    drop(visitor);
    Status status = attach(*qp, hello, std::move(fds), std::move(process));
    BE_FAILPOINT("softnic.accept.attached");
    if (status.ok()) status = add_source(qp->socket.get(), &qp->source);
    if (status.ok()) status = send_offer(*qp, PacketKind::kAccept, qp->token + kTokenHalf);
    BE_FAILPOINT("softnic.accept.accept_sent");
    if (status.ok()) {
      open(*qp);
    } else {
      fail_connecting(*qp, status);
    }
    return true;
  }
  return false;
}

void Channel::drop(Visitor* visitor) {
  if (visitor->socket.valid()) {
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, visitor->socket.get(), nullptr);
  }
  std::erase_if(visitors_, [visitor](const auto& entry) { return entry.get() == visitor; });
}

// Checks what the peer says about itself and makes the path to it.
Status Channel::attach(QueuePair& qp, const Packet& packet, PacketFds fds, PeerProcess process) {
  if (!fds.control.valid() || !fds.event.valid()) {
    return error(Code::kProtocol, "softnic: the peer sent no descriptors");
  }
  if (packet.own_qp != qp.remote.qp_number || packet.target_qp != qp.core.number() ||
      packet.instance != qp.remote.instance) {
    return error(Code::kProtocol, "softnic: QP {} is not what the peer wants to connect to",
                 qp.core.number());
  }
  const uint32_t depth = std::bit_ceil(qp.core.sends().depth());
  PeerOffer offer{.identity = {.pid = process.pid, .instance = packet.instance},
                  .channel = packet.channel,
                  .control_size = packet.control_size,
                  .data_size = packet.data_size,
                  .regions_offset = packet.regions_offset,
                  .pidfd = std::move(process.pidfd),
                  .control = std::move(fds.control),
                  .data = std::move(fds.data),
                  .event = std::move(fds.event)};
  BE_ASSIGN_OR_RETURN(PeerTable::Attached attached, device_->peers().attach(std::move(offer)));
  Path path;
  path.peer = std::move(attached.peer);
  path.event_fd = attached.event_fd;
  path.ring = path.peer->control<Slot>(packet.ring_offset, depth);
  path.ring_mask = depth - 1;
  path.block = path.peer->control<QueuePairBlock>(packet.block_offset);
  path.recv_bell = path.peer->control<Doorbell>(packet.recv_bell_offset);
  path.recv_bit = packet.recv_bit;
  path.send_bell = path.peer->control<Doorbell>(packet.send_bell_offset);
  path.send_bit = packet.send_bit;
  path.same_cq = packet.same_cq != 0;
  if (packet.ring_depth != depth || path.ring == nullptr || path.block == nullptr ||
      path.recv_bell == nullptr || path.recv_bit >= kMaxQueuePairs || path.send_bell == nullptr ||
      path.send_bit >= kMaxQueuePairs) {
    return error(Code::kProtocol, "softnic: QP {}: the peer's rings are out of bounds",
                 qp.core.number());
  }
  BE_FAILPOINT("softnic.attach.path_made");
  path.peer->populate_ring(path.ring, depth);
  watch(path.peer);
  qp.path = std::move(path);
  return {};
}

void Channel::open(QueuePair& qp) {
  qp.link = QueuePair::Link::kOpen;
  qp.core.move_to(IBV_QPS_RTR);
  qp.core.move_to(IBV_QPS_RTS);
  qp.state = IBV_QPS_RTS;
  // The peer may have been faster: its ready bit, then, has been looked at in vain.
  qp.look_again();
  qp.recv_queue->wake_if_armed();
  DeviceEvent event;
  event.kind = DeviceEvent::Kind::kConnected;
  event.qp = &qp;
  push(std::move(event));
  BE_FAILPOINT("softnic.connect.opened");
}

void Channel::fail_connecting(QueuePair& qp, const Status& status) {
  const bool report = !qp.core.in_error() && !qp.retired;
  qp.core.fail(kVendorNone);
  after_failure(qp, {});
  if (qp.link == QueuePair::Link::kAwaitHello || qp.link == QueuePair::Link::kRetryConnect) {
    qp.link = QueuePair::Link::kClosed;  // nobody has been offered our memory
    qp.peer_quiet = true;
    close_socket(qp);
  }
  if (!report) return;
  DeviceEvent event;
  event.kind = DeviceEvent::Kind::kConnected;
  event.qp = &qp;
  event.status = status;
  push(std::move(event));
}

}  // namespace be::softnic
