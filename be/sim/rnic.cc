// The sending half of RnicDevice: posting, packets, acknowledgements, failure.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "be/sim/device.h"
#include "be/verbs/rc/work_request.h"

namespace be::sim {
namespace {

constexpr uint32_t kKeepaliveBytes = 8;  // a WRITE that is not payload

}  // namespace

int RnicDevice::post_send(QueuePair& qp, ibv_send_wr* request, ibv_send_wr** bad) {
  int failure = 0;
  for (; request != nullptr && failure == 0; request = request->next) {
    uint32_t length = 0;
    const bool flushed = qp.core.in_error();
    failure = qp.core.admit(*request, &length);
    if (failure != 0) {
      *bad = request;
      break;
    }
    simulation_.note(Happening::kPost, host_.index(), qp.qp_num,
                     uint64_t{request->opcode} << 32 | length);
    if (flushed) continue;
    PostedSend send;
    send.opcode = request->opcode;
    send.bytes = length;
    send.remote_address = request->wr.rdma.remote_addr;
    send.rkey = request->wr.rdma.rkey;
    send.immediate = request->imm_data;
    send.is_inline = (request->send_flags & IBV_SEND_INLINE) != 0;
    for (int i = 0; i < request->num_sge; ++i) {
      const ibv_sge& sge = request->sg_list[i];
      if (send.is_inline) {
        send.inlined.append(reinterpret_cast<const char*>(rc::bytes_of(sge)), sge.length);
      } else {
        send.sges.push_back(sge);
      }
    }
    const bool payload = rc::is_write(request->opcode) && length > kKeepaliveBytes;
    qp.writes_out.push_back(payload ? length : 0);
    qp.write_bytes_out += qp.writes_out.back();
    most_written_ = std::max(most_written_, qp.write_bytes_out);
    qp.to_send.push_back(std::move(send));
  }
  settle(qp);
  give_turn(qp);
  return failure;
}

int RnicDevice::post_recv(QueuePair& qp, ibv_recv_wr* request, ibv_recv_wr** bad) {
  int failure = 0;
  for (; request != nullptr && failure == 0; request = request->next) {
    failure = qp.core.post_receive(*request);
    if (failure != 0) *bad = request;
  }
  settle(qp);
  return failure;
}

int RnicDevice::post_srq_recv(SharedReceiveQueue& srq, ibv_recv_wr* request, ibv_recv_wr** bad) {
  for (; request != nullptr; request = request->next) {
    if (const int failure = srq.core.post(*request); failure != 0) {
      *bad = request;
      return failure;
    }
  }
  return 0;
}

void RnicDevice::give_turn(QueuePair& qp) {
  if (!qp.has_turn && !qp.to_send.empty()) {
    qp.has_turn = true;
    turns_.push_back(qp.qp_num);
  }
  if (transmitting_ || turns_.empty()) return;
  transmitting_ = true;
  at(free_at_, [this] {
    if (fabric_.options().touch == Touch::kByNic) return transmit();
    host_.run([this] { transmit(); });
  });
}

// One packet of the queue pair whose turn it is.
void RnicDevice::transmit() {
  transmitting_ = false;
  if (gone()) return;
  while (!turns_.empty()) {
    const auto found = queue_pairs_.find(turns_.front());
    turns_.pop_front();
    if (found == queue_pairs_.end()) continue;
    QueuePair& qp = *found->second;
    qp.has_turn = false;
    if (qp.retired || qp.core.in_error() || qp.to_send.empty() ||
        qp.core.sends().execution_failed()) {
      continue;
    }
    send_packet(qp);
    give_turn(qp);
    return;
  }
}

void RnicDevice::send_packet(QueuePair& qp) {
  const PostedSend& send = qp.to_send.front();
  if (qp.sent_of_front == 0 && fail_after_ != 0 && --fail_after_ == 0) {
    simulation_.note(Happening::kFault, host_.index(), qp.qp_num, 0);
    qp.core.sends().fail_execution(IBV_WC_LOC_QP_OP_ERR);
    return report(qp);
  }
  Packet packet;
  packet.from = qp.qp_num;
  packet.to = qp.remote;
  packet.opcode = send.opcode;
  packet.offset = qp.sent_of_front;
  packet.length = std::min(fabric_.options().mtu, send.bytes - qp.sent_of_front);
  packet.first = packet.offset == 0;
  packet.last = packet.offset + packet.length == send.bytes;
  packet.message_bytes = send.bytes;
  packet.remote_address = send.remote_address;
  packet.rkey = send.rkey;
  packet.immediate = send.immediate;
  if (!gather(packet, send)) {
    simulation_.violate(
        fmt::format("{}: a work request names memory that is not registered", name_));
    qp.core.sends().fail_execution(IBV_WC_LOC_PROT_ERR);
    return report(qp);
  }
  simulation_.note(Happening::kDepart, host_.index(), qp.qp_num, packet.length);
  free_at_ = std::max(free_at_, simulation_.now()) + fabric_.serialisation(packet.length);

  qp.sent_of_front += packet.length;
  if (packet.last) {
    if (qp.core.sends().all_acknowledged()) qp.last_progress = simulation_.now();
    qp.core.sends().execute(true);
    qp.to_send.pop_front();
    qp.sent_of_front = 0;
    watch_progress(qp);
  }
  QueuePair* const peer = fabric_.find(packet.to);
  if (peer == nullptr) return;  // on the wire, to nobody
  peer->last_arrival = std::max(peer->last_arrival, free_at_ + fabric_.flight());
  simulation_.at(peer->last_arrival, [&fabric = fabric_, packet = std::move(packet)]() mutable {
    QueuePair* const to = fabric.find(packet.to);
    if (to != nullptr) to->device->arrive(std::move(packet));
  });
}

// The bytes of one packet, or where they are. False: not all of it is registered.
bool RnicDevice::gather(Packet& packet, const PostedSend& send) const {
  if (send.is_inline) {
    packet.bytes = send.inlined.substr(packet.offset, packet.length);
    return true;
  }
  uint64_t skip = packet.offset;
  uint64_t left = packet.length;
  for (const ibv_sge& sge : send.sges) {
    if (left == 0) break;
    if (skip >= sge.length) {
      skip -= sge.length;
      continue;
    }
    ibv_sge part = sge;
    part.addr += skip;
    part.length = static_cast<uint32_t>(std::min<uint64_t>(left, sge.length - skip));
    skip = 0;
    left -= part.length;
    if (find(part.lkey, part.addr, part.length, 0) == nullptr) return false;
    packet.source.push_back(part);
  }
  if (fabric_.options().touch == Touch::kByNic) fetch(packet);
  return true;
}

// --- Acknowledgements

// A NIC gives up when its retries are exhausted; with kByPeer silence is keepalive's affair.
void RnicDevice::watch_progress(QueuePair& qp) {
  if (qp.timeout_pending || fabric_.options().touch == Touch::kByPeer) return;
  qp.timeout_pending = true;
  const Nanoseconds timeout = fabric_.options().transport_timeout;
  at(qp.last_progress + timeout, [this, number = qp.qp_num, timeout] {
    const auto found = queue_pairs_.find(number);
    if (found == queue_pairs_.end() || gone()) return;
    QueuePair& late = *found->second;
    late.timeout_pending = false;
    rc::SendQueue& sends = late.core.sends();
    if (late.core.in_error() || sends.all_acknowledged()) return;
    if (simulation_.now() - late.last_progress < timeout) return watch_progress(late);
    sends.fail_remotely(IBV_WC_RETRY_EXC_ERR);
    report(late);
  });
}

void RnicDevice::acknowledged(uint32_t number, uint32_t count, ibv_wc_status status) {
  const auto found = queue_pairs_.find(number);
  if (found == queue_pairs_.end() || gone()) return;
  QueuePair& qp = *found->second;
  if (qp.retired || qp.core.in_error()) return;
  rc::SendQueue& sends = qp.core.sends();
  for (uint32_t i = sends.acknowledged(); i != count && !qp.writes_out.empty(); ++i) {
    qp.write_bytes_out -= qp.writes_out.front();
    qp.writes_out.pop_front();
  }
  if (!sends.acknowledge(count)) simulation_.violate("the simulated wire acknowledges nonsense");
  qp.last_progress = simulation_.now();
  simulation_.note(Happening::kAcknowledge, host_.index(), number, count);
  if (status != IBV_WC_SUCCESS) sends.fail_remotely(status);
  report(qp);
}

void RnicDevice::report(QueuePair& qp) {
  if (qp.core.report_sends(true)) return settle(qp);
  after_failure(qp);
}

void RnicDevice::after_failure(QueuePair& qp) {
  simulation_.note(Happening::kQueuePair, host_.index(), qp.qp_num, IBV_QPS_ERR);
  qp.to_send.clear();
  qp.sent_of_front = 0;
  settle(qp);
  if (qp.shared != nullptr && !std::exchange(qp.last_told, true)) tell_last_receive(qp);
}

// When the completions of its receives are there to be polled.
void RnicDevice::tell_last_receive(QueuePair& qp) {
  at(qp.recv_queue->all_shown() + 1ns, [this, number = qp.qp_num] {
    const auto found = queue_pairs_.find(number);
    if (found == queue_pairs_.end() || found->second->retired) return;
    DeviceEvent event;
    event.kind = DeviceEvent::Kind::kLastWqeReached;
    event.qp = found->second.get();
    found->second->recv_queue->events().push(event);
  });
}

void RnicDevice::settle(QueuePair& qp) {
  qp.send_queue->settle();
  qp.recv_queue->settle();
}

}  // namespace be::sim
