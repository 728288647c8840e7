#include "be/softnic/channel.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>

#include "be/base/failpoint.h"
#include "be/base/log.h"
#include "be/softnic/completion_queue.h"
#include "be/softnic/data_path.h"
#include "be/softnic/device.h"
#include "be/softnic/fork.h"
#include "be/softnic/queue_pair.h"

namespace be::softnic {
namespace {

// Events handled by one call, so that a storm cannot keep the thread here.
constexpr int kMaxDispatches = 1024;

}  // namespace

Result<std::unique_ptr<Channel>> Channel::create(SoftnicDevice* device, uint64_t id) {
  std::unique_ptr<Channel> channel(new Channel(device, id));
  uint64_t random[2] = {};
  if (getrandom(random, sizeof(random), 0) != sizeof(random)) {
    return error_from_errno(errno, "softnic: getrandom");
  }
  channel->socket_name_ = fmt::format("byteexpress-{:016x}{:016x}", random[0], random[1]);
  channel->epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
  channel->event_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  channel->timer_.reset(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!channel->epoll_.valid() || !channel->event_.valid() || !channel->timer_.valid()) {
    return error_from_errno(errno, "softnic: event channel");
  }
  BE_ASSIGN_OR_RETURN(channel->listener_, listen_abstract(channel->socket_name_));
  BE_RETURN_IF_ERROR(channel->add_source(channel->event_.get(), &channel->event_source_));
  BE_RETURN_IF_ERROR(channel->add_source(channel->timer_.get(), &channel->timer_source_));
  BE_RETURN_IF_ERROR(channel->add_source(channel->listener_.get(), &channel->listener_source_));
  return channel;
}

Channel::~Channel() {
  if (device_->dead()) return;
  assert(cqs_.empty());
  // QPs that were retired and are not quiet yet.
  while (!qps_.empty()) release(*qps_.back());
}

Status Channel::add_source(int fd, Source* source) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = source;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    return error_from_errno(errno, "softnic: watching a descriptor");
  }
  return {};
}

void Channel::push(DeviceEvent event) {
  events_.push_back(std::move(event));
  signal_event_fd(event_.get());
}

void Channel::remove(CompletionQueue* cq) {
  std::erase(cqs_, cq);
  std::erase_if(events_, [cq](const DeviceEvent& event) { return event.cq == cq; });
}

void Channel::take_events(std::vector<DeviceEvent>& out) {
  if (device_->dead()) {
    DeviceEvent removed;
    removed.kind = DeviceEvent::Kind::kDeviceRemoved;
    removed.status = forked_status();
    out.push_back(std::move(removed));
    return;
  }
  // One at a time: a handler may destroy what a later entry of a batch would point to.
  epoll_event event;
  for (int i = 0; i < kMaxDispatches && epoll_wait(epoll_.get(), &event, 1, 0) > 0; ++i) {
    dispatch(*static_cast<Source*>(event.data.ptr));
  }
  for (CompletionQueue* cq : cqs_) {
    publish_acknowledgements(*cq);
    if (!take_wake_up(*cq)) continue;
    DeviceEvent completion;
    completion.cq = cq;
    out.push_back(std::move(completion));
  }
  std::move(events_.begin(), events_.end(), std::back_inserter(out));
  events_.clear();
}

void Channel::dispatch(Source& source) {
  switch (source.kind) {
    case Source::Kind::kEvent: {
      uint64_t count = 0;
      if (read(event_.get(), &count, sizeof(count)) < 0) return;  // somebody else's wake: none
      return;
    }
    case Source::Kind::kListener:
      return accept_visitors();
    case Source::Kind::kTimer:
      return on_timer();
    case Source::Kind::kVisitor:
      return on_visitor(static_cast<Visitor*>(source.object));
    case Source::Kind::kQueuePair:
      return on_queue_pair(*static_cast<QueuePair*>(source.object));
    case Source::Kind::kPeer:
      return on_peer_exit(static_cast<PeerWatch*>(source.object));
  }
}

void Channel::wake_at(Clock::time_point when) {
  if (when >= timer_at_) return;
  timer_at_ = when;
  const auto delay = std::max<Clock::duration>(when - Clock::now(), std::chrono::microseconds(1));
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(delay).count();
  itimerspec spec{};
  spec.it_value.tv_sec = ns / 1'000'000'000;
  spec.it_value.tv_nsec = ns % 1'000'000'000;
  timerfd_settime(timer_.get(), 0, &spec, nullptr);
}

void Channel::on_timer() {
  uint64_t count = 0;
  if (read(timer_.get(), &count, sizeof(count)) < 0) return;
  timer_at_ = Clock::time_point::max();
  const auto now = Clock::now();
  for (size_t i = visitors_.size(); i-- > 0;) {
    if (visitors_[i]->deadline <= now) {
      drop(visitors_[i].get());
    } else {
      wake_at(visitors_[i]->deadline);
    }
  }
  for (QueuePair* qp : qps_) {
    const bool connecting = qp->link == QueuePair::Link::kAwaitHello ||
                            qp->link == QueuePair::Link::kRetryConnect ||
                            qp->link == QueuePair::Link::kAwaitAccept;
    if (!connecting || qp->core.in_error()) continue;
    if (qp->deadline <= now) {
      fail_connecting(
          *qp, error(Code::kDeadlineExceeded, "softnic: QP {}: the peer did not answer in time",
                     qp->core.number()));
      continue;
    }
    wake_at(qp->deadline);
    if (qp->link == QueuePair::Link::kRetryConnect) start_connecting(*qp);
  }
  for (CompletionQueue* cq : cqs_) cq->wake_if_armed();  // one may wait for an RNR delay
}

void Channel::on_peer_exit(PeerWatch* watch) {
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, watch->peer->pidfd(), nullptr);
  watch->gone = true;
  const std::shared_ptr<Peer> peer = watch->peer;  // the watch goes with its last QP
  const std::vector<QueuePair*> all = qps_;
  for (QueuePair* qp : all) {
    if (qp->path.peer != peer) continue;
    break_queue_pair(*qp, kVendorPeerGone,
                     error(Code::kUnavailable, "softnic: QP {}: process {} has exited",
                           qp->core.number(), peer->identity().pid));
    peer_is_quiet(*qp);
  }
}

// One packet a call: whoever floods us takes turns with everybody else.
void Channel::on_queue_pair(QueuePair& qp) {
  Packet packet;
  PacketFds fds;
  const ReceiveResult result = receive_packet(qp.socket.get(), &packet, &fds);
  if (result == ReceiveResult::kNothing) return;
  if (result == ReceiveResult::kClosed) return connection_closed(qp);
  if (result == ReceiveResult::kMalformed) return out_of_turn(qp, "a malformed packet");
  if (packet.kind == PacketKind::kReset && qp.link != QueuePair::Link::kOpen) {
    fail_connecting(
        qp, error(Code::kUnavailable, "softnic: QP {}: the peer has given up", qp.core.number()));
    peer_is_quiet(qp);
    return;
  }
  if (packet.kind == PacketKind::kReset) {
    BE_FAILPOINT("softnic.reset.received");
    break_queue_pair(
        qp, kVendorPeerReset,
        error(Code::kUnavailable, "softnic: QP {}: the peer has reset it", qp.core.number()));
    peer_is_quiet(qp);
    return;
  }
  if (packet.kind != PacketKind::kAccept || qp.link != QueuePair::Link::kAwaitAccept ||
      std::memcmp(packet.token_half, qp.token + kTokenHalf, kTokenHalf) != 0) {
    return out_of_turn(qp, "a packet out of turn");
  }
  BE_FAILPOINT("softnic.connect.accept_received");
  if (qp.core.in_error()) return;  // given up meanwhile: its Reset will come
  Result<PeerProcess> process = peer_process(qp.socket.get());
  const Status status = process.ok()
                            ? attach(qp, packet, std::move(fds), std::move(process).value())
                            : process.status();
  if (status.ok()) {
    open(qp);
  } else {
    fail_connecting(qp, status);
  }
}

void Channel::connection_closed(QueuePair& qp) {
  const bool attached = qp.link == QueuePair::Link::kOpen;
  close_socket(qp);
  if (!attached) {  // it never had our memory
    qp.peer_quiet = true;
    fail_connecting(
        qp, error(Code::kUnavailable, "softnic: QP {}: the peer refused", qp.core.number()));
  } else {
    break_queue_pair(
        qp, kVendorPeerGone,
        error(Code::kUnavailable, "softnic: QP {}: the peer is gone", qp.core.number()));
  }
  qp.link = QueuePair::Link::kClosed;
  if (qp.peer_quiet) peer_is_quiet(qp);
}

// The peer is out of its mind. Its Reset, its end of the connection, or its exit will still tell
// when it has let go of our memory; until then whatever else it says is dropped.
void Channel::out_of_turn(QueuePair& qp, const char* what) {
  if (qp.core.in_error()) return;
  const Status why = error(Code::kProtocol, "softnic: QP {}: {}", qp.core.number(), what);
  log_warn("{}", why.message());
  if (qp.link == QueuePair::Link::kOpen) {
    break_queue_pair(qp, kVendorBadPacket, why);
  } else {
    fail_connecting(qp, why);
  }
}

void Channel::close_socket(QueuePair& qp) {
  if (!qp.socket.valid()) return;
  // Explicitly: a forked child may keep the connection, and thereby its place in the epoll.
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, qp.socket.get(), nullptr);
  qp.socket.reset();
}

void Channel::send_reset(QueuePair& qp) {
  if (qp.reset_sent || !qp.socket.valid()) return;
  qp.reset_sent = true;
  Packet packet;
  packet.kind = PacketKind::kReset;
  // Refused: the peer is gone, or will be told by the closing of the connection.
  send_packet(qp.socket.get(), packet, nullptr).ignore();
  BE_FAILPOINT("softnic.reset.sent");
}

// Nothing of the peer can touch our memory through this QP any more.
void Channel::peer_is_quiet(QueuePair& qp) {
  qp.peer_quiet = true;
  if (qp.link == QueuePair::Link::kOpen || qp.link == QueuePair::Link::kAwaitAccept) {
    qp.link = QueuePair::Link::kClosed;
  }
  close_socket(qp);
  if (!qp.retired) return;
  BE_FAILPOINT("softnic.retire.quiet");
  DeviceEvent event;
  event.kind = DeviceEvent::Kind::kQuiesced;
  event.token = qp.quiesce_token;
  release(qp);
  push(std::move(event));
}

bool Channel::retire(QueuePair& qp) {
  qp.retired = true;
  after_failure(qp, {});
  std::erase_if(events_, [&qp](const DeviceEvent& event) { return event.qp == &qp; });
  const bool exposed = (qp.link == QueuePair::Link::kOpen || qp.path.peer != nullptr ||
                        qp.link == QueuePair::Link::kAwaitAccept) &&
                       !qp.peer_quiet;
  if (exposed) return false;
  qp.peer_quiet = true;
  release(qp);
  return true;
}

void Channel::watch(const std::shared_ptr<Peer>& peer) {
  for (auto& known : watches_) {
    if (known->peer == peer) {
      ++known->users;
      return;
    }
  }
  watches_.push_back(std::make_unique<PeerWatch>());
  PeerWatch& added = *watches_.back();
  added.peer = peer;
  added.users = 1;
  const Status status = add_source(peer->pidfd(), &added.source);
  if (!status.ok()) log_warn("softnic: the end of a peer will go unnoticed: {}", status.message());
}

void Channel::unwatch(const Peer* peer) {
  for (size_t i = 0; i < watches_.size(); ++i) {
    if (watches_[i]->peer.get() != peer) continue;
    if (--watches_[i]->users > 0) return;
    if (!watches_[i]->gone) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, peer->pidfd(), nullptr);
    watches_.erase(watches_.begin() + static_cast<std::ptrdiff_t>(i));
    return;
  }
}

void Channel::release(QueuePair& qp) {
  std::erase(qps_, &qp);
  if (qp.path.peer) unwatch(qp.path.peer.get());
  device_->destroy(&qp);
}

}  // namespace be::softnic
