// ibv_poll_cq and ibv_req_notify_cq of softnic: matching of messages, acknowledgements, arming.
#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "be/softnic/device.h"
#include "be/softnic/queue_pair.h"

namespace be::softnic {
namespace {

// Messages taken from one QP before the others have their turn.
constexpr int kTurn = 32;

enum class Taken : uint8_t { kMessage, kNothing, kBlocked, kFailed };

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
  Doorbell& bell = *qp.path.send_bell;
  if (mark_ready(bell, qp.path.send_bit) == kNotArmed) return;
  const uint32_t wanted = qp.path.block->wanted.load(std::memory_order_relaxed);
  const bool wanted_now = wanted - before - 1 < qp.received - before;
  if (awaited || wanted_now) wake_armed(bell, qp.path.event_fd);
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

// No receive for the message at the head of the ring.
Taken not_ready(QueuePair& qp, uint8_t rnr_retry) {
  // Slots behind it may carry the acknowledgements that the user waits for before it posts
  // receives again.
  for (uint32_t i = qp.received + 1; i - qp.received < qp.ring_depth; ++i) {
    const Slot& slot = qp.ring[i & qp.ring_mask];
    if (slot.sequence.load(std::memory_order_acquire) != i + 1) break;
    if (!qp.core.sends().acknowledge(slot.header.acknowledged)) {
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
          out_ = reinterpret_cast<uint8_t*>(sges_->addr);
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
    const ibv_wc_status status = scatter.append(bytes, pairs[i].length);
    if (status != IBV_WC_SUCCESS) return status;
  }
  return *valid ? IBV_WC_SUCCESS : IBV_WC_GENERAL_ERR;
}

Taken take_message(QueuePair& qp) {
  const Slot& slot = qp.ring[qp.received & qp.ring_mask];
  if (slot.sequence.load(std::memory_order_acquire) != qp.received + 1) return Taken::kNothing;
  const SlotHeader header = copy_once(slot.header);
  if (!qp.core.sends().acknowledge(header.acknowledged)) {
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
  qp.core.complete_receive({.write_with_imm = is_write,
                            .immediate = header.opcode != kSlotSend,
                            .imm_data = header.imm_data,
                            .byte_len = header.byte_length,
                            .source_qp = qp.remote.qp_number});
  ++qp.received;
  qp.acknowledgement_awaited |= (header.flags & kSlotSignalled) != 0;
  return Taken::kMessage;
}

// True: look again at the next poll without being told.
bool receive_messages(QueuePair& qp) {
  Taken taken = Taken::kMessage;
  bool any = false;
  for (int turn = 0; turn < kTurn && taken == Taken::kMessage; ++turn) {
    if (!qp.recv_queue->core.has_room()) break;
    taken = take_message(qp);
    any |= taken == Taken::kMessage;
  }
  if (any && !qp.in_unacknowledged && taken != Taken::kFailed) {
    qp.in_unacknowledged = true;
    qp.recv_queue->unacknowledged.push_back(&qp);
  }
  return taken == Taken::kMessage || taken == Taken::kBlocked;
}

// Reads what the peer has acknowledged. False: that was nonsense, and the QP is in ERR.
bool take_acknowledgements(QueuePair& qp) {
  rc::SendQueue& sends = qp.core.sends();
  if (!sends.all_acknowledged()) {
    const uint64_t word = qp.block->acknowledged.load(std::memory_order_acquire);
    const uint32_t count = static_cast<uint32_t>(word);
    // Slots may have told us more already.
    if (static_cast<int32_t>(count - sends.acknowledged()) > 0 && !sends.acknowledge(count)) {
      violated(qp, "the peer acknowledges what was not sent");
      return false;
    }
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

// True: look again at the next poll without being told.
bool report_sends(QueuePair& qp) {
  if (!qp.core.sends().awaits_report()) return false;
  if (!take_acknowledgements(qp)) return false;
  if (!qp.core.report_sends(false)) {
    after_failure(qp, {});
    return false;
  }
  return qp.core.sends().next() != rc::SendQueue::Next::kNothing;
}

// True: look again at the next poll without being told.
bool progress(QueuePair& qp, const CompletionQueue& cq) {
  bool again = false;
  if (qp.recv_queue == &cq && qp.live()) again = receive_messages(qp);
  if (qp.send_queue == &cq && qp.live()) again |= report_sends(qp);
  return again;
}

void progress_all(CompletionQueue& cq) {
  const size_t count = cq.active.size();
  if (cq.cursor >= count) cq.cursor = 0;
  for (size_t i = 0; i < count && cq.core.has_room(); ++i) {
    const size_t place = cq.cursor + i;
    progress(*cq.active[place < count ? place : place - count], cq);
  }
  if (count > 1) ++cq.cursor;
}

void progress_ready(CompletionQueue& cq) {
  const size_t words = cq.pending.size();
  if (cq.cursor >= words * 64) cq.cursor = 0;
  const uint32_t first_word = cq.cursor / 64;
  uint32_t next_cursor = cq.cursor;
  for (size_t i = 0; i <= words; ++i) {  // the first word twice: from the cursor, then up to it
    const uint32_t w = static_cast<uint32_t>((first_word + i) % words);
    std::atomic<uint64_t>& ready = cq.bell->ready[w];
    if (ready.load(std::memory_order_relaxed) != 0) {
      cq.pending[w] |= ready.exchange(0, std::memory_order_seq_cst);
    }
    uint64_t bits = cq.pending[w];
    const uint64_t before_cursor = (uint64_t{1} << (cq.cursor % 64)) - 1;
    if (i == 0) bits &= ~before_cursor;
    if (i == words) bits &= before_cursor;
    for (; bits != 0; bits &= bits - 1) {
      if (!cq.core.has_room()) {
        cq.cursor = next_cursor;
        return;
      }
      const auto bit = static_cast<uint32_t>(std::countr_zero(bits));
      const uint64_t mask = uint64_t{1} << bit;
      cq.pending[w] &= ~mask;
      next_cursor = w * 64 + bit + 1;
      QueuePair* qp = w * 64 + bit < cq.members.size() ? cq.members[w * 64 + bit] : nullptr;
      if (qp != nullptr && progress(*qp, cq)) cq.pending[w] |= mask;
    }
  }
  cq.cursor = next_cursor;
}

// A completion queue that lost completions cannot be trusted: all its QPs fail.
void fail_overflowed(CompletionQueue& cq) {
  for (QueuePair* qp : cq.active) {
    break_queue_pair(*qp, kVendorOverflow,
                     error(Code::kResourceExhausted, "softnic: completion queue overflow at QP {}",
                           qp->core.number()));
  }
}

// Whether a poll now would make progress with this QP.
bool has_work(QueuePair& qp, const CompletionQueue& cq) {
  if (!qp.live()) return false;
  if (qp.recv_queue == &cq) {
    const Slot& slot = qp.ring[qp.received & qp.ring_mask];
    if (slot.sequence.load(std::memory_order_acquire) == qp.received + 1) {
      const bool blocked = qp.core.receives().empty() && qp.rnr_attempts > 0;
      if (!blocked && (!qp.core.receives().empty() || slot.header.rnr_retry < 7)) return true;
      if (blocked) qp.channel->wake_at(qp.rnr_next);
    }
  }
  if (qp.send_queue == &cq && qp.core.sends().awaits_report()) {
    if (!take_acknowledgements(qp)) return true;
    return qp.core.sends().next() != rc::SendQueue::Next::kNothing;
  }
  return false;
}

bool has_work(CompletionQueue& cq) {
  if (!cq.core.empty() || !cq.deferred.empty()) return true;
  if (cq.direct()) {
    for (QueuePair* qp : cq.active) {
      if (has_work(*qp, cq)) return true;
    }
    return false;
  }
  for (uint32_t w = 0; w < cq.pending.size(); ++w) {
    uint64_t bits = cq.pending[w] | cq.bell->ready[w].load(std::memory_order_seq_cst);
    for (; bits != 0; bits &= bits - 1) {
      const uint32_t bit = w * 64 + static_cast<uint32_t>(std::countr_zero(bits));
      QueuePair* qp = bit < cq.members.size() ? cq.members[bit] : nullptr;
      if (qp != nullptr && has_work(*qp, cq)) return true;
    }
  }
  return false;
}

}  // namespace

void publish_acknowledgements(CompletionQueue& cq) {
  for (QueuePair* qp : cq.unacknowledged) {
    qp->in_unacknowledged = false;
    if (qp->live() && qp->published != qp->received) publish_acknowledgement(*qp);
  }
  cq.unacknowledged.clear();
}

int poll_cq(ibv_cq* base, int count, ibv_wc* completions) {
  CompletionQueue& cq = *static_cast<CompletionQueue*>(base);
  if (count <= 0) return 0;
  if (!cq.unacknowledged.empty()) publish_acknowledgements(cq);
  cq.core.begin_poll(completions, count);
  if (!cq.deferred.empty()) execute_deferred(cq);
  if (cq.direct()) {
    progress_all(cq);
  } else {
    progress_ready(cq);
  }
  const int polled = cq.core.end_poll();
  if (cq.core.overflowed()) fail_overflowed(cq);
  return polled;
}

int req_notify_cq(ibv_cq* base, int solicited_only) {
  CompletionQueue& cq = *static_cast<CompletionQueue*>(base);
  if (!cq.unacknowledged.empty()) publish_acknowledgements(cq);
  cq.armed = true;
  cq.bell->armed.store(solicited_only ? kArmedForSolicited : kArmed, std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (has_work(cq)) cq.wake_if_armed();
  return 0;
}

void deliver_remaining(QueuePair& qp) {
  while (qp.live() && !qp.core.receives().empty() && !qp.recv_queue->core.overflowed()) {
    if (take_message(qp) != Taken::kMessage) break;
  }
  if (!qp.live() || !take_acknowledgements(qp)) return;
  if (!qp.core.report_sends(true)) after_failure(qp, {});
}

}  // namespace be::softnic
