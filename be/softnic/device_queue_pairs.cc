// The part of SoftnicDevice that makes, connects and ends queue pairs.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

#include "be/base/failpoint.h"
#include "be/softnic/device.h"
#include "be/softnic/fork.h"
#include "be/verbs/errors.h"
#include "be/verbs/rc/rnr.h"

namespace be::softnic {
namespace {

constexpr uint32_t kIndexBits = 12;  // of a QP number; the rest counts its lives
static_assert(kMaxQueuePairs == 1u << kIndexBits);
constexpr uint32_t kMaxLives = (1u << (24 - kIndexBits)) - 1;

}  // namespace

// A place among the QPs of a CQ: the QP's ready bit there.
uint32_t SoftnicDevice::join(CompletionQueue& cq, QueuePair* qp) {
  ++cq.users;
  const auto known = std::find(cq.members.begin(), cq.members.end(), qp);
  if (known != cq.members.end()) return static_cast<uint32_t>(known - cq.members.begin());
  auto place = std::find(cq.members.begin(), cq.members.end(), nullptr);
  if (place == cq.members.end()) {
    cq.members.push_back(nullptr);
    place = std::prev(cq.members.end());
    cq.pending.resize((cq.members.size() + 63) / 64);
  }
  *place = qp;
  cq.active.push_back(qp);
  // Members that were polled directly may have something that no bit tells of.
  std::fill(cq.pending.begin(), cq.pending.end(), UINT64_MAX);
  return static_cast<uint32_t>(place - cq.members.begin());
}

void SoftnicDevice::leave(CompletionQueue& cq, QueuePair* qp, uint32_t bit) {
  --cq.users;
  cq.core.drop(qp->core.number());
  std::erase(cq.active, qp);
  std::erase(cq.unacknowledged, qp);
  std::erase(cq.deferred, qp);
  if (cq.members[bit] == qp) cq.members[bit] = nullptr;
}

Result<be::QueuePair> SoftnicDevice::create_qp(const QueuePairOptions& options) {
  if (dead_) return forked_status();
  auto* send_queue = static_cast<CompletionQueue*>(options.send_cq);
  auto* recv_queue = static_cast<CompletionQueue*>(options.recv_cq);
  auto* srq = static_cast<SharedReceiveQueue*>(options.srq);
  if (send_queue == nullptr || recv_queue == nullptr ||
      send_queue->channel != recv_queue->channel) {
    return invalid("ibv_create_qp", "softnic: both completion queues, of one event channel");
  }
  if (options.send_depth == 0 || options.send_depth > kMaxQueueDepth ||
      (srq == nullptr && (options.recv_depth == 0 || options.recv_depth > kMaxQueueDepth)) ||
      options.max_send_sge > kMaxPairs || options.max_recv_sge > kMaxRecvSge) {
    return invalid("ibv_create_qp",
                   fmt::format("softnic: depths {} and {}, SGEs {} and {}", options.send_depth,
                               options.recv_depth, options.max_send_sge, options.max_recv_sge));
  }
  const uint32_t max_inline = std::min<uint32_t>(options.max_inline_bytes, kSlotPayload);

  std::lock_guard lock(mutex_);
  uint32_t index = 0;
  if (!free_qps_.empty()) {
    index = free_qps_.back();
    free_qps_.pop_back();
  } else if (qps_.size() < options_.max_queue_pairs) {
    index = static_cast<uint32_t>(qps_.size());
    qps_.emplace_back();
    qp_lives_.push_back(0);
  } else {
    return verb_error("ibv_create_qp", ENOMEM,
                      fmt::format("softnic has {} queue pairs", qps_.size()));
  }
  qp_lives_[index] = static_cast<uint16_t>(qp_lives_[index] % kMaxLives + 1);
  ++live_qps_;

  rc::QueuePairConfig config;
  config.number = uint32_t{qp_lives_[index]} << kIndexBits | index;
  config.send_cq = &send_queue->core;
  config.recv_cq = &recv_queue->core;
  config.srq = srq ? &srq->core : nullptr;
  config.send_depth = options.send_depth;
  config.recv_depth = options.recv_depth;
  config.max_recv_sge = options.max_recv_sge;
  config.limits = {.max_sge = options.max_send_sge, .max_inline_bytes = max_inline};
  qps_[index] = std::make_unique<QueuePair>(config);
  QueuePair& qp = *qps_[index];
  qp.core.move_to(IBV_QPS_INIT);

  qp.context = &context_;
  qp.qp_context = options.user;
  qp.pd = &pd_;
  qp.send_cq = send_queue;
  qp.recv_cq = recv_queue;
  qp.srq = srq;
  qp.qp_num = config.number;
  qp.state = IBV_QPS_INIT;
  qp.qp_type = IBV_QPT_RC;

  qp.device = this;
  qp.channel = send_queue->channel;
  qp.send_queue = send_queue;
  qp.recv_queue = recv_queue;
  qp.with_srq = srq != nullptr;
  if (srq != nullptr) ++srq->users;
  if (options.thread_domain == nullptr) {
    qp.posting_lock = &modelled_doorbell_locks_[index % modelled_doorbell_locks_.size()];
  }
  if (link_.paces() || options_.completion_delay > 0ns) {
    qp.pacing = std::make_unique<Pacing>(link_, options_.completion_delay, options.send_depth);
  }
  qp.block = control_->queue_pair(index);
  qp.block->acknowledged.store(0, std::memory_order_relaxed);
  qp.block->wanted.store(0, std::memory_order_relaxed);
  qp.send_bit = join(*send_queue, &qp);
  qp.recv_bit = join(*recv_queue, &qp);
  qp.channel->add(&qp);
  return be::QueuePair{.qp = &qp, .max_inline_bytes = max_inline};
}

Result<EndpointBlob> SoftnicDevice::local_endpoint(ibv_qp* base) {
  const auto& qp = *static_cast<QueuePair*>(base);
  return encode_endpoint({.host = host_,
                          .instance = instance_,
                          .qp_number = qp.core.number(),
                          .send_depth = qp.core.sends().depth(),
                          .socket_name = qp.channel->socket_name()});
}

Status SoftnicDevice::reachable(const EndpointBlob& remote) {
  BE_ASSIGN_OR_RETURN(const Endpoint endpoint, decode_endpoint(remote));
  if (std::strcmp(endpoint.host.boot_id, host_.boot_id) != 0) {
    return error(Code::kUnavailable, "softnic: the peer is on another host");
  }
  if (endpoint.host.network_namespace != host_.network_namespace) {
    return error(Code::kUnavailable, "softnic: the peer is in another network namespace");
  }
  if (endpoint.host.uid != host_.uid) {
    return error(Code::kUnavailable, "softnic: the peer runs as uid {}, we as {}",
                 endpoint.host.uid, host_.uid);
  }
  return {};
}

Status SoftnicDevice::connect_qp(ibv_qp* base, const EndpointBlob& remote,
                                 const uint8_t secret_token[16], bool initiator,
                                 const ConnectOptions& options) {
  if (dead_) return forked_status();
  auto& qp = *static_cast<QueuePair*>(base);
  BE_RETURN_IF_ERROR(reachable(remote));
  BE_ASSIGN_OR_RETURN(const Endpoint endpoint, decode_endpoint(remote));
  if (options.rnr_retry > 7 || options.min_rnr_timer > 31) {
    return invalid("ibv_modify_qp", fmt::format("softnic: rnr_retry {}, min_rnr_timer {}",
                                                options.rnr_retry, options.min_rnr_timer));
  }
  std::memcpy(qp.token, secret_token, sizeof(qp.token));
  qp.rnr_retry = options.rnr_retry;
  qp.rnr_delay = rc::rnr_delay(options.min_rnr_timer);
  return qp.channel->connect(qp, endpoint, initiator);
}

Status SoftnicDevice::fail_qp(ibv_qp* base) {
  if (dead_) return forked_status();
  auto& qp = *static_cast<QueuePair*>(base);
  break_queue_pair(qp, kVendorLocal, {});
  return {};
}

ibv_qp_state SoftnicDevice::qp_state(ibv_qp* base) {
  return static_cast<QueuePair*>(base)->core.state();
}

Result<QuiesceToken> SoftnicDevice::retire_qp(ibv_qp* base) {
  if (dead_) return kQuiescedNow;  // nothing of the child is exposed
  auto& qp = *static_cast<QueuePair*>(base);
  {
    std::lock_guard lock(mutex_);
    qp.quiesce_token = ++last_token_;
  }
  const QuiesceToken token = qp.quiesce_token;
  CompletionQueue& send_queue = *qp.send_queue;
  CompletionQueue& recv_queue = *qp.recv_queue;
  auto* srq = static_cast<SharedReceiveQueue*>(qp.srq);
  const uint32_t send_bit = qp.send_bit;
  const uint32_t recv_bit = qp.recv_bit;
  qp.core.abandon();
  leave(send_queue, &qp, send_bit);
  leave(recv_queue, &qp, recv_bit);
  if (srq != nullptr) --srq->users;
  BE_FAILPOINT("softnic.retire.left");
  return qp.channel->retire(qp) ? kQuiescedNow : token;
}

void SoftnicDevice::destroy(QueuePair* qp) {
  // A peer that is not quiet may still write to the ring and to our block, and read what was staged
  // for it: then they stay unused for the life of the device.
  const bool quiet = qp->peer_quiet;
  if (quiet && qp->ring != nullptr) control_->free_ring(qp->ring, qp->ring_depth);
  BE_FAILPOINT("softnic.retire.ring_freed");
  if (quiet) {
    for (const Staged& staged : qp->staged) control_->free_staging(staged.place, staged.bytes);
  }
  const uint32_t index = qp->core.number() & (kMaxQueuePairs - 1);
  std::lock_guard lock(mutex_);
  qps_[index].reset();
  if (quiet) free_qps_.push_back(index);
  --live_qps_;
  forget_data_if_unused();
}

}  // namespace be::softnic
