// One message from a ring into a receive, and acknowledgements both ways (data_path.h).
#include <algorithm>
#include <atomic>
#include <cstring>

#include "be/base/failpoint.h"
#include "be/softnic/data_path.h"
#include "be/softnic/device.h"

namespace be::softnic {
namespace {

// A copy that the compiler cannot take back by reading the shared original again: what is
// checked is what is used, whatever the peer writes meanwhile.
SlotHeader copy_once(const SlotHeader& shared) {
  const SlotHeader copy = shared;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  return copy;
}

// Tells the peer what we have matched; `refusal`: why the next message is not taken.
void publish_acknowledgement(QueuePair& qp, ibv_wc_status refusal = IBV_WC_SUCCESS) {
  const bool awaited = qp.acknowledgement_awaited || refusal != IBV_WC_SUCCESS;
  qp.acknowledgement_awaited = false;
  const uint32_t before = qp.published;
  qp.published = qp.received;
  qp.path.block->acknowledged.store(uint64_t{refusal} << 32 | qp.received,
                                    std::memory_order_release);
  BE_FAILPOINT("softnic.acknowledge.stored");
  Doorbell& bell = *qp.path.send_bell;
  const uint64_t armed = mark_ready(bell, qp.path.send_bit);
  BE_FAILPOINT("softnic.acknowledge.marked");
  if (armed == kNotArmed) return;
  if (armed_for(armed) == kArmedForSolicited && refusal == IBV_WC_SUCCESS) return;
  const uint32_t wanted = qp.path.block->wanted.load(std::memory_order_relaxed);
  const bool wanted_now = wanted - before - 1 < qp.received - before;
  if (awaited || wanted_now) wake_armed(armed, &qp.path.send_woken, qp.path.event_fd);
}

// The peer has broken the rules of the ring: its QP and ours are done with.
Taken violated(QueuePair& qp, const char* what) {
  qp.core.fail(kVendorBadSlot);
  after_failure(qp, error(Code::kProtocol, "softnic: QP {}: {}", qp.core.number(), what));
  return Taken::kFailed;
}

// Ends the connection by a message that cannot be received.
Taken refuse(QueuePair& qp, ibv_wc_status ours, ibv_wc_status theirs) {
  publish_acknowledgement(qp, theirs);
  qp.core.fail_receive(ours, kVendorNone);
  after_failure(qp, {});
  return Taken::kFailed;
}

// A slot's count is older than one that we have read from the block meanwhile, if the slot became
// visible after our last look at the ring: it says nothing new then.
bool take_count(QueuePair& qp, uint32_t count) {
  rc::SendQueue& sends = qp.core.sends();
  return static_cast<int32_t>(count - sends.acknowledged()) <= 0 || sends.acknowledge(count);
}

// No receive for the message at the head of the ring.
Taken not_ready(QueuePair& qp, uint8_t rnr_retry) {
  // Slots behind it may carry the acknowledgements that the user waits for before it posts
  // receives again.
  for (uint32_t i = qp.received + 1; i - qp.received < qp.ring_depth; ++i) {
    const Slot& slot = qp.ring[i & qp.ring_mask];
    if (slot.sequence.load(std::memory_order_acquire) != i + 1) break;
    if (!take_count(qp, slot.header.acknowledged)) {
      return violated(qp, "the peer acknowledges what was not sent");
    }
  }
  if (rnr_retry >= 7) return Taken::kBlocked;
  const auto now = Channel::Clock::now();
  if (qp.rnr_attempts > 0 && now < qp.rnr_next) return Taken::kBlocked;
  if (rc::judge_rnr(rnr_retry, ++qp.rnr_attempts) == rc::RnrVerdict::kRetry) {
    qp.rnr_next = now + qp.rnr_delay;
    return Taken::kBlocked;
  }
  publish_acknowledgement(qp, IBV_WC_RNR_RETRY_EXC_ERR);
  qp.core.fail(kVendorNone);
  after_failure(qp, error(Code::kResourceExhausted,
                          "softnic: QP {}: no receive was posted for a message of the peer",
                          qp.core.number()));
  return Taken::kFailed;
}

// Copies the bytes of a SEND into the receive's SGEs. IBV_WC_SUCCESS, or our error.
class Scatter {
 public:
  Scatter(const RegionTable& regions, const rc::Receive& receive)
      : regions_(regions), sges_(receive.sges), left_(receive.num_sge) {}

  ibv_wc_status append(const uint8_t* bytes, uint32_t length) {
    while (length > 0) {
      if (space_ == 0) {
        if (left_ == 0) return IBV_WC_LOC_LEN_ERR;
        if (sges_->length > 0) {
          if (regions_.find(sges_->lkey, sges_->addr, sges_->length, IBV_ACCESS_LOCAL_WRITE) ==
              nullptr) {
            return IBV_WC_LOC_PROT_ERR;
          }
          out_ = rc::bytes_of(*sges_);
          space_ = sges_->length;
        }
        ++sges_;
        --left_;
        continue;
      }
      const uint32_t part = std::min(length, space_);
      std::memcpy(out_, bytes, part);
      out_ += part;
      space_ -= part;
      bytes += part;
      length -= part;
    }
    return IBV_WC_SUCCESS;
  }

 private:
  const RegionTable& regions_;
  const ibv_sge* sges_;
  uint32_t left_;
  uint8_t* out_ = nullptr;
  uint32_t space_ = 0;
};

// `valid` is false if the peer's description of its message makes no sense.
ibv_wc_status copy_message(QueuePair& qp, const Slot& slot, const SlotHeader& header, bool* valid) {
  Scatter scatter(qp.device->regions(), qp.core.receives().front());
  *valid = true;
  if (header.pair_count == 0) {
    *valid = header.byte_length <= kSlotPayload;
    return *valid ? scatter.append(slot.payload, header.byte_length) : IBV_WC_GENERAL_ERR;
  }
  *valid = header.pair_count <= kMaxPairs;
  if (!*valid) return IBV_WC_GENERAL_ERR;
  SlotPair pairs[kMaxPairs];
  std::memcpy(pairs, slot.payload, sizeof(SlotPair) * header.pair_count);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  uint64_t total = 0;
  for (uint8_t i = 0; i < header.pair_count; ++i) total += pairs[i].length;
  *valid = total == header.byte_length;
  for (uint8_t i = 0; i < header.pair_count && *valid; ++i) {
    const uint8_t* bytes = qp.path.peer->readable(pairs[i].file, pairs[i].offset, pairs[i].length);
    *valid = bytes != nullptr;
    if (!*valid) break;
    const auto half = static_cast<uint32_t>(failpoint::before_middle(pairs[i].length));
    ibv_wc_status status = scatter.append(bytes, half);
    if (half < pairs[i].length && status == IBV_WC_SUCCESS) {
      BE_FAILPOINT("softnic.fetch.middle");
      status = scatter.append(bytes + half, pairs[i].length - half);
    }
    if (status != IBV_WC_SUCCESS) return status;
  }
  return *valid ? IBV_WC_SUCCESS : IBV_WC_GENERAL_ERR;
}

}  // namespace

bool message_waits(const QueuePair& qp) {
  if (!qp.live()) return false;
  const Slot& slot = qp.ring[qp.received & qp.ring_mask];
  return slot.sequence.load(std::memory_order_acquire) == qp.received + 1;
}

Taken take_message(QueuePair& qp) {
  const Slot& slot = qp.ring[qp.received & qp.ring_mask];
  if (slot.sequence.load(std::memory_order_acquire) != qp.received + 1) return Taken::kNothing;
  const SlotHeader header = copy_once(slot.header);
  BE_FAILPOINT("softnic.take.header_copied");
  if (!take_count(qp, header.acknowledged)) {
    return violated(qp, "the peer acknowledges what was not sent");
  }
  if (header.opcode < kSlotSend || header.opcode > kSlotWriteWithImm) {
    return violated(qp, "a message of unknown kind");
  }
  if (qp.core.receives().empty()) return not_ready(qp, header.rnr_retry);
  qp.rnr_attempts = 0;
  const bool is_write = header.opcode == kSlotWriteWithImm;
  if (!is_write) {
    bool valid = true;
    const ibv_wc_status status = copy_message(qp, slot, header, &valid);
    if (!valid) return violated(qp, "a message that lies outside of the peer's memory");
    if (status != IBV_WC_SUCCESS) {
      return refuse(qp, status,
                    status == IBV_WC_LOC_LEN_ERR ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_REM_OP_ERR);
    }
  }
  BE_FAILPOINT("softnic.take.copied");
  qp.core.complete_receive({.write_with_imm = is_write,
                            .immediate = header.opcode != kSlotSend,
                            .imm_data = header.imm_data,
                            .byte_len = header.byte_length,
                            .source_qp = qp.remote.qp_number});
  ++qp.received;
  BE_FAILPOINT("softnic.take.completed");
  qp.acknowledgement_awaited |= (header.flags & kSlotSignalled) != 0;
  return Taken::kMessage;
}

// Reads what the peer has acknowledged. False: that was nonsense, and the QP is in ERR.
bool take_acknowledgements(QueuePair& qp) {
  rc::SendQueue& sends = qp.core.sends();
  if (!sends.all_acknowledged()) {
    const uint64_t word = qp.block->acknowledged.load(std::memory_order_acquire);
    const uint32_t count = static_cast<uint32_t>(word);
    // Slots may have told us more already.
    if (!take_count(qp, count)) {
      violated(qp, "the peer acknowledges what was not sent");
      return false;
    }
    BE_FAILPOINT("softnic.acknowledge.taken");
    const uint32_t refusal = static_cast<uint32_t>(word >> 32);
    if (refusal != IBV_WC_SUCCESS && count == sends.acknowledged()) {
      sends.fail_remotely(refusal <= IBV_WC_GENERAL_ERR ? static_cast<ibv_wc_status>(refusal)
                                                        : IBV_WC_REM_OP_ERR);
    }
  }
  while (!qp.staged.empty() &&
         static_cast<int32_t>(sends.acknowledged() - qp.staged.front().message) >= 0) {
    qp.device->control().free_staging(qp.staged.front().place, qp.staged.front().bytes);
    qp.staged.pop_front();
  }
  return true;
}

void publish_acknowledgements(CompletionQueue& cq) {
  for (QueuePair* qp : cq.unacknowledged) {
    qp->in_unacknowledged = false;
    if (qp->live() && qp->published != qp->received) publish_acknowledgement(*qp);
  }
  cq.unacknowledged.clear();
}

void deliver_remaining(QueuePair& qp) {
  while (qp.live() && !qp.core.receives().empty() && !qp.recv_queue->core.overflowed()) {
    if (take_message(qp) != Taken::kMessage) break;
  }
  if (!qp.live() || !take_acknowledgements(qp)) return;
  if (!qp.core.report_sends(true)) after_failure(qp, {});
}

}  // namespace be::softnic
