// How queue pairs of RnicDevice are connected and let go of: by order, by the peer's death, by the
// host's own.
//
//   retire --Touch::kByNic--> quiet at once
//          --Touch::kByPeer--> reset ---> the peer's CPU stops copying --> confirmation: quiet
//                              (behind all that is on its way, in both directions)
#include <cerrno>
#include <cstring>

#include "be/sim/device.h"
#include "be/verbs/errors.h"

namespace be::sim {
namespace {

constexpr Nanoseconds kConnectTime = 1us;
constexpr Nanoseconds kSetUpBound = 5s;
constexpr Nanoseconds kDeathNotice = 50us;

}  // namespace

Status RnicDevice::connect_qp(ibv_qp* base, const EndpointBlob& remote,
                              const uint8_t secret_token[16], bool, const ConnectOptions& options) {
  auto& qp = *static_cast<QueuePair*>(base);
  BE_RETURN_IF_ERROR(reachable(remote));
  if (gone()) return verb_error("ibv_modify_qp", ENETDOWN, name_);
  std::memcpy(&qp.remote, remote.data(), sizeof(uint32_t));
  std::memcpy(qp.token, secret_token, sizeof(qp.token));
  qp.options = options;
  if (!qp.core.move_to(IBV_QPS_RTR) || !qp.core.move_to(IBV_QPS_RTS)) {
    return verb_error("ibv_modify_qp", EINVAL, name_);
  }
  if (fabric_.options().touch == Touch::kByNic) {
    tell_connected(qp.qp_num, {});
    return {};
  }
  // Both ends must be there.
  QueuePair* const peer = fabric_.find(qp.remote);
  if (peer != nullptr && peer->remote == qp.qp_num) {
    const bool same = std::memcmp(peer->token, qp.token, sizeof(qp.token)) == 0;
    const Status how = same ? ok_status() : error(Code::kPermission, "the tokens differ");
    tell_connected(qp.qp_num, how);
    peer->device->tell_connected(peer->qp_num, how);
  }
  after(kSetUpBound, [this, number = qp.qp_num] {
    const auto found = queue_pairs_.find(number);
    if (found == queue_pairs_.end() || found->second->connected) return;
    tell_connected(number, error(Code::kUnavailable, "{}: the peer does not answer", name_));
  });
  return {};
}

void RnicDevice::tell_connected(uint32_t number, const Status& how) {
  after(kConnectTime, [this, number, how] {
    const auto found = queue_pairs_.find(number);
    if (found == queue_pairs_.end()) return;
    QueuePair& qp = *found->second;
    if (qp.retired || qp.connected) return;
    qp.connected = how.ok();
    simulation_.note(Happening::kQueuePair, host_.index(), number, IBV_QPS_RTS);
    DeviceEvent event;
    event.kind = DeviceEvent::Kind::kConnected;
    event.qp = &qp;
    event.status = how;
    qp.recv_queue->events().push(event);
    process(qp);
  });
}

Result<QuiesceToken> RnicDevice::retire_qp(ibv_qp* base) {
  auto& qp = *static_cast<QueuePair*>(base);
  const uint32_t number = qp.qp_num;
  qp.core.abandon();
  qp.retired = true;
  qp.to_send.clear();
  qp.send_queue->drop(number);
  qp.recv_queue->drop(number);
  qp.recv_queue->events().forget(&qp);
  --qp.send_queue->users;
  --qp.recv_queue->users;
  if (qp.shared != nullptr) --qp.shared->users;
  simulation_.note(Happening::kQueuePair, host_.index(), number, IBV_QPS_RESET);

  const QueuePair* peer = fabric_.find(qp.remote);
  const bool quiet = fabric_.options().touch == Touch::kByNic || gone() || peer == nullptr ||
                     peer->remote != number;
  if (quiet) {
    fabric_.remove(number);
    queue_pairs_.erase(number);
    return kQuiescedNow;
  }
  qp.quiesce_token = ++last_token_;
  qp.quiet_channel = &qp.recv_queue->events();
  ask_for_confirmation(qp);
  return last_token_;
}

// Arrives behind all that we have sent.
void RnicDevice::ask_for_confirmation(const QueuePair& qp) {
  QueuePair* const peer = fabric_.find(qp.remote);
  peer->last_arrival = std::max(peer->last_arrival, simulation_.now() + fabric_.flight());
  at(peer->last_arrival, [this, number = qp.remote, by = qp.qp_num] {
    const QueuePair* to = fabric_.find(number);
    if (to == nullptr) return confirmed(by);
    RnicDevice* const device = to->device;
    device->host_.run([device, number, by] { device->peer_has_reset(number, by); });
  });
}

void RnicDevice::peer_has_reset(uint32_t number, uint32_t by) {
  const auto found = queue_pairs_.find(number);
  if (found != queue_pairs_.end() && !found->second->retired) {
    break_queue_pair(*found->second,
                     error(Code::kUnavailable, "{}: the peer has reset QP {}", name_, number));
  }
  QueuePair* const peer = fabric_.find(by);
  if (peer == nullptr) return;  // its process is dead
  peer->last_arrival = std::max(peer->last_arrival, simulation_.now() + fabric_.flight());
  simulation_.at(peer->last_arrival, [&fabric = fabric_, by] {
    if (const QueuePair* to = fabric.find(by)) to->device->confirmed(by);
  });
}

void RnicDevice::confirmed(uint32_t number) {
  const auto found = queue_pairs_.find(number);
  if (found == queue_pairs_.end() || !found->second->retired) return;
  DeviceEvent event;
  event.kind = DeviceEvent::Kind::kQuiesced;
  event.token = found->second->quiesce_token;
  VirtualChannel* const channel = found->second->quiet_channel;
  fabric_.remove(number);
  queue_pairs_.erase(found);
  channel->push(event);
}

void RnicDevice::break_queue_pair(QueuePair& qp, const Status& why) {
  if (qp.core.in_error()) return;
  qp.core.fail(0);
  after_failure(qp);
  DeviceEvent event;
  event.kind = DeviceEvent::Kind::kQpFatal;
  event.qp = &qp;
  event.status = why;
  qp.recv_queue->events().push(event);
}

// The kernel takes our queue pairs away. With kByPeer the peers learn of it from our pidfd.
void RnicDevice::on_host_killed() {
  for (const auto& [number, qp] : queue_pairs_) {
    fabric_.remove(number);
    if (fabric_.options().touch == Touch::kByNic || qp->remote == 0) continue;
    simulation_.after(kDeathNotice, [&fabric = fabric_, remote = qp->remote] {
      const QueuePair* peer = fabric.find(remote);
      if (peer == nullptr) return;
      RnicDevice* const device = peer->device;
      device->host_.run([device, remote] { device->peer_has_died(remote); });
    });
  }
}

void RnicDevice::peer_has_died(uint32_t number) {
  const auto found = queue_pairs_.find(number);
  if (found == queue_pairs_.end()) return;
  if (found->second->retired) return confirmed(number);
  break_queue_pair(*found->second, error(Code::kUnavailable, "{}: the peer has exited", name_));
}

void RnicDevice::break_queue_pairs(const Status& why) {
  for (const auto& [number, qp] : queue_pairs_) {
    if (!qp->retired) break_queue_pair(*qp, why);
  }
}

// Nobody is left who could touch its memory.
void RnicDevice::on_host_walled() {
  break_queue_pairs(error(Code::kUnavailable, "{} is gone", name_));
  std::vector<uint32_t> retired;
  for (const auto& [number, qp] : queue_pairs_) {
    if (qp->retired) retired.push_back(number);
  }
  for (const uint32_t number : retired) confirmed(number);
}

}  // namespace be::sim
