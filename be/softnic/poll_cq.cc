// ibv_poll_cq and ibv_req_notify_cq of softnic (data_path.h).
#include <bit>

#include "be/base/failpoint.h"
#include "be/softnic/channel.h"
#include "be/softnic/data_path.h"

namespace be::softnic {
namespace {

// Messages taken from one QP before the others have their turn.
constexpr int kTurn = 32;

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

// True: look again at the next poll without being told.
bool report_sends(QueuePair& qp) {
  rc::SendQueue& sends = qp.core.sends();
  if (!sends.awaits_report()) return false;
  if (qp.pacing != nullptr) qp.pacing->release(sends);
  if (!take_acknowledgements(qp)) return false;
  if (!qp.core.report_sends(false)) {
    after_failure(qp, {});
    return false;
  }
  return sends.next() != rc::SendQueue::Next::kNothing || sends.holds_back();
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
    if (qp.pacing != nullptr) qp.channel->wake_at(qp.pacing->release(qp.core.sends()));
    if (!take_acknowledgements(qp)) return true;
    return qp.core.sends().next() != rc::SendQueue::Next::kNothing;
  }
  return false;
}

bool has_work(CompletionQueue& cq) {
  if (!cq.core.empty() || (!cq.deferred.empty() && deferred_is_due(cq))) return true;
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

// True: there is something to poll already.
bool arm(CompletionQueue& cq) {
  cq.bell->armed.store(arming(++cq.armings, cq.armed_for), std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  BE_FAILPOINT("softnic.arm.set");
  return has_work(cq);
}

}  // namespace

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
  cq.armed_for = solicited_only ? kArmedForSolicited : kArmed;
  if (arm(cq)) cq.wake_if_armed();
  return 0;
}

bool take_wake_up(CompletionQueue& cq) {
  if (!cq.armed || (!cq.woken && !arm(cq))) return false;
  cq.armed = cq.woken = false;
  cq.bell->armed.store(kNotArmed, std::memory_order_relaxed);
  return true;
}

}  // namespace be::softnic
