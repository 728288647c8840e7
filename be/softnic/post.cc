// ibv_post_send, ibv_post_recv, ibv_post_srq_recv of softnic (data_path.h).
//
// Small work is done at once: a message is written to the peer's ring, a WRITE copied into the
// peer's memory. A WRITE above kImmediateWrite waits for ibv_poll_cq, one per call, and all
// later requests of its QP wait behind it; so one linked post never copies megabytes, and
// fragments let other QPs in between. On a paced device every request waits so, for its time on
// the link (pacing.h).
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "be/base/failpoint.h"
#include "be/softnic/data_path.h"
#include "be/softnic/device.h"
#include "be/verbs/rc/work_request.h"

namespace be::softnic {
namespace {

constexpr uint32_t kImmediateWrite = 4096;

enum class Executed : uint8_t { kYes, kFailed, kNoStaging };

// The local side of a request, its keys checked.
struct Sources {
  const ibv_sge* sges;
  int count;
  uint64_t file_offsets[kMaxPairs];
  bool shared = true;  // all of it lies in the data memfd, which the peer has mapped
};

bool resolve(const QueuePair& qp, const ibv_send_wr& request, Sources* sources) {
  sources->sges = request.sg_list;
  sources->count = request.num_sge;
  sources->shared = qp.data_offered;
  if (request.send_flags & IBV_SEND_INLINE) return true;
  const RegionTable& regions = qp.device->regions();
  for (int i = 0; i < request.num_sge; ++i) {
    const ibv_sge& sge = request.sg_list[i];
    const LocalRegion* region = regions.find(sge.lkey, sge.addr, sge.length, 0);
    if (region == nullptr) {
      if (sge.length == 0) continue;
      return false;
    }
    sources->file_offsets[i] = region->file_offset + (sge.addr - region->region.address);
    sources->shared &= region->file_offset != kPrivateMemory;
  }
  return true;
}

void gather(const Sources& sources, uint8_t* out) {
  for (int i = 0; i < sources.count; ++i) {
    const ibv_sge& sge = sources.sges[i];
    if (sge.length == 0) continue;  // its address may be null
    std::memcpy(out, rc::bytes_of(sge), sge.length);
    out += sge.length;
  }
}

// The same, into memory of the peer.
void write_remote(const Sources& sources, uint8_t* out) {
  if constexpr (!failpoint::kCompiledIn) return gather(sources, out);
  for (int i = 0; i < sources.count; ++i) {
    const ibv_sge& sge = sources.sges[i];
    if (sge.length == 0) continue;
    const size_t half = failpoint::before_middle(sge.length);
    std::memcpy(out, rc::bytes_of(sge), half);
    if (half < sge.length) BE_FAILPOINT("softnic.write.middle");
    std::memcpy(out + half, rc::bytes_of(sge) + half, sge.length - half);
    out += sge.length;
  }
}

// Makes the memory of a message fetchable by pairs: its own, or a staged copy.
bool write_pairs(QueuePair& qp, const Sources& sources, uint32_t length, Slot& slot,
                 SlotHeader* header) {
  auto* pairs = reinterpret_cast<SlotPair*>(slot.payload);
  if (sources.shared) {
    for (int i = 0; i < sources.count; ++i) {
      if (sources.sges[i].length == 0) continue;
      pairs[header->pair_count++] = {sources.file_offsets[i], sources.sges[i].length, kDataFile};
    }
    return true;
  }
  ControlMemory& control = qp.device->control();
  uint8_t* const place = control.allocate_staging(length);
  if (place == nullptr) return false;
  gather(sources, place);
  BE_FAILPOINT("softnic.post.staged");
  qp.staged.push_back({.message = qp.core.sends().messages() + 1, .bytes = length, .place = place});
  pairs[0] = {control.offset_of(place), length, kControlFile};
  header->pair_count = 1;
  return true;
}

void mark_executed(QueuePair& qp, bool message) {
  rc::SendQueue& sends = qp.core.sends();
  if (qp.pacing == nullptr) return sends.execute(message);
  qp.pacing->executed(sends.next_to_execute());
  sends.execute_held_back(message);
}

Executed execute(QueuePair& qp, const ibv_send_wr& request, uint32_t length) {
  rc::SendQueue& sends = qp.core.sends();
  Path& path = qp.path;
  Sources sources;
  if (!resolve(qp, request, &sources)) {
    sends.fail_execution(IBV_WC_LOC_PROT_ERR);
    return Executed::kFailed;
  }
  if (rc::is_write(request.opcode) && length > 0) {
    uint8_t* const target = path.peer->remote(request.wr.rdma.rkey, request.wr.rdma.remote_addr,
                                              length, IBV_ACCESS_REMOTE_WRITE);
    if (target == nullptr) {
      sends.fail_execution(IBV_WC_REM_ACCESS_ERR);
      return Executed::kFailed;
    }
    write_remote(sources, target);
    BE_FAILPOINT("softnic.write.copied");
  }
  if (!rc::is_message(request.opcode)) {
    mark_executed(qp, false);
    // Its completion waits for messages that may not be signalled themselves.
    if (!sends.all_acknowledged() && (request.send_flags & IBV_SEND_SIGNALED)) {
      qp.block->wanted.store(sends.messages(), std::memory_order_relaxed);
    }
    return Executed::kYes;
  }

  const uint32_t sequence = sends.messages() + 1;
  Slot& slot = path.ring[(sequence - 1) & path.ring_mask];
  SlotHeader header{};
  header.acknowledged = qp.received;
  header.byte_length = length;
  header.rnr_retry = qp.rnr_retry;
  header.flags =
      static_cast<uint8_t>(((request.send_flags & IBV_SEND_SIGNALED) ? kSlotSignalled : 0) |
                           ((request.send_flags & IBV_SEND_SOLICITED) ? kSlotSolicited : 0));
  if (rc::has_immediate(request.opcode)) header.imm_data = request.imm_data;
  if (rc::is_write(request.opcode)) {
    header.opcode = kSlotWriteWithImm;
  } else {
    header.opcode = request.opcode == IBV_WR_SEND ? kSlotSend : kSlotSendWithImm;
    if (length <= kSlotPayload) {
      gather(sources, slot.payload);
    } else if (!write_pairs(qp, sources, length, slot, &header)) {
      return Executed::kNoStaging;
    }
  }
  slot.header = header;
  BE_FAILPOINT("softnic.post.slot_filled");
  slot.sequence.store(sequence, std::memory_order_release);
  BE_FAILPOINT("softnic.post.published");
  mark_executed(qp, true);
  return Executed::kYes;
}

bool is_large(const ibv_send_wr& request, uint32_t length) {
  return rc::is_write(request.opcode) && length > kImmediateWrite;
}

void defer(QueuePair& qp, const ibv_send_wr& request) {
  const uint32_t index = qp.core.sends().last_posted();
  qp.stored.store(index, request);
  if (qp.paced()) qp.pacing->posted(index);
  if (qp.deferred) return;
  qp.deferred = true;
  qp.send_queue->deferred.push_back(&qp);
  qp.send_queue->wake_if_armed();
}

// After executing: wakes the peer if messages went out, and our own poll if something is done.
void announce(QueuePair& qp, uint32_t messages_before, bool solicited) {
  const rc::SendQueue& sends = qp.core.sends();
  if (sends.messages() != messages_before) {
    if (qp.path.same_cq) {
      qp.published = qp.received;  // our slots have told it
      qp.acknowledgement_awaited = false;
    }
    Doorbell& bell = *qp.path.recv_bell;
    const uint64_t armed = mark_ready(bell, qp.path.recv_bit);
    BE_FAILPOINT("softnic.post.marked");
    if (armed_for(armed) == kArmed || (armed != kNotArmed && solicited)) {
      wake_armed(armed, &qp.path.recv_woken, qp.path.event_fd);
    }
  }
  if (sends.next() != rc::SendQueue::Next::kNothing || sends.holds_back()) {
    qp.send_queue->look_again(qp.send_bit);
    qp.send_queue->wake_if_armed();
  }
}

class PostingLock {
 public:
  explicit PostingLock(QueuePair& qp) : mutex_(qp.posting_lock) {
    if (mutex_ == nullptr || mutex_->try_lock()) return;
    qp.device->count_contended_post();
    mutex_->lock();
  }
  ~PostingLock() {
    if (mutex_ != nullptr) mutex_->unlock();
  }
  PostingLock(const PostingLock&) = delete;
  PostingLock& operator=(const PostingLock&) = delete;

 private:
  std::mutex* const mutex_;
};

}  // namespace

int post_send(ibv_qp* base, ibv_send_wr* request, ibv_send_wr** bad) {
  QueuePair& qp = *static_cast<QueuePair*>(base);
  const PostingLock lock(qp);
  rc::SendQueue& sends = qp.core.sends();
  const uint32_t messages_before = sends.messages();
  bool solicited = false;
  int error = 0;
  for (; request != nullptr; request = request->next) {
    uint32_t length = 0;
    error = qp.core.admit(*request, &length);
    if (error != 0) break;
    if (qp.core.in_error()) {
      qp.send_queue->wake_if_armed();
      continue;
    }
    if (sends.execution_failed()) continue;  // to be flushed
    BE_FAILPOINT("softnic.post.admitted");
    solicited |= (request->send_flags & IBV_SEND_SOLICITED) != 0;
    if (qp.deferred || is_large(*request, length) || qp.paced()) {
      defer(qp, *request);
      continue;
    }
    if (execute(qp, *request, length) == Executed::kNoStaging) {
      sends.withdraw();
      qp.device->count_staging_refused();
      error = ENOMEM;
      break;
    }
  }
  if (error != 0) *bad = request;
  if (qp.live()) announce(qp, messages_before, solicited);
  return error;
}

void execute_deferred(CompletionQueue& cq) {
  QueuePair& qp = *cq.deferred.front();
  cq.deferred.pop_front();
  qp.deferred = false;
  if (!qp.live()) return;
  BE_FAILPOINT("softnic.write.resumed");
  rc::SendQueue& sends = qp.core.sends();
  const uint32_t messages_before = sends.messages();
  bool solicited = false;
  bool large_done = false;
  while (!sends.all_executed()) {
    const uint32_t index = sends.next_to_execute();
    const ibv_send_wr& request = qp.stored.at(index);
    const uint32_t length = sends.record(index).byte_len;
    if (qp.paced() && qp.pacing->leaves(index, length) > Channel::Clock::now()) break;
    if (is_large(request, length)) {
      if (large_done) break;
      large_done = true;
    }
    solicited |= (request.send_flags & IBV_SEND_SOLICITED) != 0;
    if (execute(qp, request, length) != Executed::kYes) break;
  }
  if (!sends.all_executed() && !sends.execution_failed()) {
    qp.deferred = true;
    cq.deferred.push_back(&qp);
  }
  announce(qp, messages_before, solicited);
}

bool deferred_is_due(CompletionQueue& cq) {
  auto next = Channel::Clock::time_point::max();
  for (QueuePair* qp : cq.deferred) {
    if (!qp->live() || !qp->paced()) return true;
    const uint32_t index = qp->core.sends().next_to_execute();
    next = std::min(next, qp->pacing->leaves(index, qp->core.sends().record(index).byte_len));
  }
  if (next == Channel::Clock::time_point::max()) return false;
  if (next <= Channel::Clock::now()) return true;
  cq.channel->wake_at(next);
  return false;
}

int post_recv(ibv_qp* base, ibv_recv_wr* request, ibv_recv_wr** bad) {
  QueuePair& qp = *static_cast<QueuePair*>(base);
  for (; request != nullptr; request = request->next) {
    if (int error = qp.core.post_receive(*request)) {
      *bad = request;
      return error;
    }
    if (qp.core.in_error()) qp.recv_queue->wake_if_armed();
  }
  // A message may have waited for this receive.
  if (qp.recv_queue->armed && message_waits(qp)) qp.recv_queue->wake_if_armed();
  return 0;
}

int post_srq_recv(ibv_srq* base, ibv_recv_wr* request, ibv_recv_wr** bad) {
  SharedReceiveQueue& srq = *static_cast<SharedReceiveQueue*>(base);
  for (; request != nullptr; request = request->next) {
    if (int error = srq.core.post(*request)) {
      *bad = request;
      return error;
    }
  }
  return 0;
}

}  // namespace be::softnic
