// The receiving half of RnicDevice: packets, memory, receives, receiver not ready.
#include <algorithm>
#include <cstring>
#include <utility>

#include "be/sim/device.h"
#include "be/verbs/rc/rnr.h"
#include "be/verbs/rc/work_request.h"

namespace be::sim {

void RnicDevice::arrive(Packet packet) {
  if (fabric_.options().touch == Touch::kByNic) return take(std::move(packet));
  host_.run([this, packet = std::move(packet)]() mutable { take(std::move(packet)); });
}

void RnicDevice::take(Packet packet) {
  const auto found = queue_pairs_.find(packet.to);
  if (found == queue_pairs_.end() || gone()) return;
  QueuePair& qp = *found->second;
  simulation_.note(Happening::kArrive, host_.index(), packet.to, packet.length);
  if (fabric_.options().touch == Touch::kByPeer) {
    if (fabric_.find(packet.from) == nullptr) return;  // died in the middle of it
    fetch(packet);
    if (qp.retired || qp.core.in_error()) {  // the peer's CPU copies without asking us
      if (rc::is_write(packet.opcode)) store(packet);
      return;
    }
  } else if (qp.core.in_error()) {
    return;
  }
  qp.inbound.push_back(std::move(packet));
  process(qp);
}

void RnicDevice::process(QueuePair& qp) {
  while (!qp.inbound.empty() && !qp.waits_for_receive && qp.connected && !qp.core.in_error()) {
    if (!execute(qp, qp.inbound.front())) return;
    qp.inbound.pop_front();
  }
}

bool RnicDevice::execute(QueuePair& qp, const Packet& packet) {
  const bool writes = rc::is_write(packet.opcode);
  if (writes && !store(packet)) {
    simulation_.violate(fmt::format("{}: a peer writes where it may not", name_));
    answer(qp, IBV_WC_REM_ACCESS_ERR);
    break_queue_pair(qp, error(Code::kDeviceError, "remote access error"));
    return false;
  }
  const bool consumes = packet.opcode == IBV_WR_RDMA_WRITE_WITH_IMM ? packet.last : !writes;
  if (consumes) {
    if (qp.core.receive() == nullptr) return receiver_not_ready(qp, packet);
    qp.core.begin_receive();
    qp.rnr_attempts = 0;
    if (!writes && !scatter(qp, packet)) {
      simulation_.violate(fmt::format("{}: a SEND is longer than its receive", name_));
      answer(qp, IBV_WC_REM_INV_REQ_ERR);
      qp.core.fail_receive(IBV_WC_LOC_LEN_ERR, 0);
      after_failure(qp);
      return false;
    }
  }
  if (!packet.last) return true;
  if (consumes) {
    qp.core.complete_receive({.write_with_imm = writes,
                              .immediate = rc::has_immediate(packet.opcode),
                              .imm_data = packet.immediate,
                              .byte_len = packet.message_bytes,
                              .source_qp = packet.from});
    settle(qp);
  }
  ++qp.executed;
  answer(qp, IBV_WC_SUCCESS);
  return true;
}

// False: it has to wait, or the sender is told that it has waited long enough.
bool RnicDevice::receiver_not_ready(QueuePair& qp, const Packet& packet) {
  const QueuePair* sender = fabric_.find(packet.from);
  if (sender == nullptr) return false;
  // On an SRQ too: whoever has given a receive back to its sender has posted it before.
  if (sender->options.rnr_retry == 0 || qp.shared != nullptr) {
    simulation_.violate(
        fmt::format("{}: no receive is posted for QP {}: the peer sent without "
                    "credit, or a reserve is missing",
                    name_, qp.qp_num));
  }
  if (rc::judge_rnr(sender->options.rnr_retry, ++qp.rnr_attempts) == rc::RnrVerdict::kGiveUp) {
    answer(qp, IBV_WC_RNR_RETRY_EXC_ERR);
    qp.inbound.clear();
    return false;
  }
  qp.waits_for_receive = true;
  after(rc::rnr_delay(qp.options.min_rnr_timer), [this, number = qp.qp_num] {
    const auto found = queue_pairs_.find(number);
    if (found == queue_pairs_.end()) return;
    found->second->waits_for_receive = false;
    process(*found->second);
  });
  return false;
}

// How many work requests have been executed here, and how the next one fares.
void RnicDevice::answer(QueuePair& qp, ibv_wc_status status) {
  QueuePair* const sender = fabric_.find(qp.remote);
  if (sender == nullptr) return;
  sender->last_acknowledgement =
      std::max(sender->last_acknowledgement, simulation_.now() + fabric_.flight());
  simulation_.at(sender->last_acknowledgement,
                 [&fabric = fabric_, number = qp.remote, count = qp.executed, status] {
                   QueuePair* const to = fabric.find(number);
                   if (to == nullptr) return;
                   RnicDevice* const device = to->device;
                   if (fabric.options().touch == Touch::kByNic) {
                     return device->acknowledged(number, count, status);
                   }
                   device->host_.run([device, number, count, status] {
                     device->acknowledged(number, count, status);
                   });
                 });
}

// --- Memory

void RnicDevice::fetch(Packet& packet) {
  for (const ibv_sge& sge : packet.source) {
    packet.bytes.append(reinterpret_cast<const char*>(rc::bytes_of(sge)), sge.length);
  }
  packet.source.clear();
}

bool RnicDevice::store(const Packet& packet) const {
  const uint64_t address = packet.remote_address + packet.offset;
  if (find(packet.rkey, address, packet.length, IBV_ACCESS_REMOTE_WRITE) == nullptr) return false;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): verbs' way
  std::memcpy(reinterpret_cast<void*>(address), packet.bytes.data(), packet.length);
  return true;
}

// Into the front receive, which stays there until the message is complete.
bool RnicDevice::scatter(QueuePair& qp, const Packet& packet) const {
  const rc::Receive& receive = *qp.core.receive();
  uint64_t skip = packet.offset;
  size_t done = 0;
  for (uint32_t i = 0; i < receive.num_sge && done < packet.length; ++i) {
    const ibv_sge& sge = receive.sges[i];
    if (skip >= sge.length) {
      skip -= sge.length;
      continue;
    }
    const size_t part = std::min<size_t>(packet.length - done, sge.length - skip);
    if (find(sge.lkey, sge.addr + skip, part, IBV_ACCESS_LOCAL_WRITE) == nullptr) return false;
    std::memcpy(rc::bytes_of(sge) + skip, packet.bytes.data() + done, part);
    done += part;
    skip = 0;
  }
  return done == packet.length;
}

}  // namespace be::sim
