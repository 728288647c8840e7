#include "be/softnic/device.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cerrno>
#include <cstring>

#include "be/base/log.h"
#include "be/verbs/errors.h"
#include "be/verbs/rc/rnr.h"

namespace be {

Result<std::unique_ptr<Device>> open_softnic(const SoftnicOptions& options) {
  return softnic::SoftnicDevice::open(options);
}

}  // namespace be

namespace be::softnic {
namespace {

constexpr uint32_t kMaxRecvSge = 16;
constexpr uint32_t kIndexBits = 12;  // of a QP number; the rest counts its lives
static_assert(kMaxQueuePairs == 1u << kIndexBits);
constexpr uint32_t kMaxLives = (1u << (24 - kIndexBits)) - 1;

Status invalid(std::string_view verb, std::string_view about) {
  return verb_error(verb, EINVAL, about);
}

}  // namespace

Result<std::unique_ptr<Device>> SoftnicDevice::open(const SoftnicOptions& options) {
  if (options.max_queue_pairs == 0 || options.max_queue_pairs > kMaxQueuePairs) {
    return error(Code::kInvalidArgument, "softnic: max_queue_pairs {} is not in 1 ... {}",
                 options.max_queue_pairs, kMaxQueuePairs);
  }
  std::unique_ptr<SoftnicDevice> device(new SoftnicDevice(options));
  BE_ASSIGN_OR_RETURN(device->host_, read_host_identity());
  if (getrandom(&device->instance_, sizeof(device->instance_), 0) < 0) {
    return error_from_errno(errno, "softnic: getrandom");
  }
  BE_ASSIGN_OR_RETURN(device->control_, ControlMemory::create(options.staging_bytes));
  device->regions_ = std::make_unique<RegionTable>(device->control_->regions());
  return std::unique_ptr<Device>(std::move(device));
}

SoftnicDevice::SoftnicDevice(const SoftnicOptions& options) : options_(options) {
  limits_ = {.max_queue_depth = kMaxQueueDepth,
             .max_completions = kMaxCompletions,
             .max_send_sge = kMaxPairs,
             .max_recv_sge = kMaxRecvSge,
             .max_inline_bytes = kSlotPayload,
             .max_queue_pairs = options.max_queue_pairs};
  bells_.resize(kMaxCompletionQueues);
  std::strcpy(ibv_device_.name, "softnic");
  context_.device = &ibv_device_;
  context_.cmd_fd = -1;
  context_.async_fd = -1;
  context_.ops.poll_cq = softnic::poll_cq;
  context_.ops.req_notify_cq = softnic::req_notify_cq;
  context_.ops.post_send = softnic::post_send;
  context_.ops.post_recv = softnic::post_recv;
  context_.ops.post_srq_recv = softnic::post_srq_recv;
  pd_.context = &context_;
}

SoftnicDevice::~SoftnicDevice() { assert(live_qps_ == 0); }

// Memory.

// Takes the first sealed memfd that comes as the one that peers map.
uint64_t SoftnicDevice::shared_offset(size_t length, const Backing& backing) {
  if (backing.fd < 0) return kPrivateMemory;
  struct stat status {};
  if (fstat(backing.fd, &status) != 0) return kPrivateMemory;
  if (!data_fd_.valid()) {
    const int seals = fcntl(backing.fd, F_GET_SEALS);
    if (seals < 0 || !(seals & F_SEAL_SHRINK)) {
      log_warn("softnic: a memfd without F_SEAL_SHRINK is registered: peers cannot map it");
      return kPrivateMemory;
    }
    data_fd_.reset(fcntl(backing.fd, F_DUPFD_CLOEXEC, 0));
    if (!data_fd_.valid()) return kPrivateMemory;
    data_size_ = static_cast<uint64_t>(status.st_size);
    data_inode_ = status.st_ino;
  } else if (status.st_ino != data_inode_) {
    return kPrivateMemory;
  }
  if (backing.offset > data_size_ || length > data_size_ - backing.offset) return kPrivateMemory;
  return backing.offset;
}

Result<ibv_mr*> SoftnicDevice::register_memory(void* address, size_t length, int access,
                                               const Backing& backing) {
  const auto start = reinterpret_cast<uint64_t>(address);
  if (address == nullptr || length == 0 || length > UINT64_MAX - start) {
    return invalid("ibv_reg_mr", fmt::format("softnic, {} bytes", length));
  }
  std::lock_guard lock(mutex_);
  const uint64_t offset = shared_offset(length, backing);
  const uint32_t key = regions_->add(
      {.address = start, .length = length, .access = static_cast<uint32_t>(access)}, offset);
  if (key == 0) return verb_error("ibv_reg_mr", ENOMEM, "softnic: the key table is full");
  if (offset != kPrivateMemory) ++data_regions_;
  auto* region = new ibv_mr{};
  region->context = &context_;
  region->pd = &pd_;
  region->addr = address;
  region->length = length;
  region->handle = offset != kPrivateMemory;
  region->lkey = region->rkey = key;
  return region;
}

Status SoftnicDevice::deregister(ibv_mr* region) {
  std::lock_guard lock(mutex_);
  if (region == nullptr || !regions_->remove(region->lkey))
    return invalid("ibv_dereg_mr", "softnic");
  if (region->handle) --data_regions_;
  forget_data_if_unused();
  delete region;
  return {};
}

void SoftnicDevice::describe_data(UniqueFd* fd, uint64_t* size) {
  std::lock_guard lock(mutex_);
  *size = data_fd_.valid() ? data_size_ : 0;
  if (data_fd_.valid()) fd->reset(fcntl(data_fd_.get(), F_DUPFD_CLOEXEC, 0));
}

// Peers keep it mapped while we have QPs; without any another pool may take its place.
void SoftnicDevice::forget_data_if_unused() {
  if (data_regions_ == 0 && live_qps_ == 0) data_fd_.reset();
}

// Channels, domains, completion queues, SRQs.

Result<std::unique_ptr<EventChannel>> SoftnicDevice::create_event_channel() {
  std::unique_lock lock(mutex_);
  const uint64_t id = next_channel_++;
  lock.unlock();
  BE_ASSIGN_OR_RETURN(std::unique_ptr<Channel> channel, Channel::create(this, id));
  return std::unique_ptr<EventChannel>(std::move(channel));
}

Result<ibv_td*> SoftnicDevice::create_thread_domain() { return new ibv_td{&context_}; }
void SoftnicDevice::destroy_thread_domain(ibv_td* domain) { delete domain; }

Result<ibv_cq*> SoftnicDevice::create_cq(uint32_t entries, EventChannel* channel, void* user,
                                         ibv_td*) {
  if (entries == 0 || entries > kMaxCompletions || channel == nullptr) {
    return invalid("ibv_create_cq", fmt::format("softnic, {} entries", entries));
  }
  auto cq = std::make_unique<CompletionQueue>(entries);
  {
    std::lock_guard lock(mutex_);
    const auto place = std::find(bells_.begin(), bells_.end(), false);
    if (place == bells_.end()) {
      return verb_error("ibv_create_cq", ENOMEM,
                        fmt::format("softnic has {} completion queues", kMaxCompletionQueues));
    }
    *place = true;
    cq->bell_index = static_cast<uint32_t>(place - bells_.begin());
  }
  cq->context = &context_;
  cq->cq_context = user;
  cq->cqe = static_cast<int>(entries);
  cq->channel = static_cast<Channel*>(channel);
  cq->bell = control_->doorbell(cq->bell_index);
  cq->bell->armed.store(kNotArmed, std::memory_order_relaxed);
  cq->channel->add(cq.get());
  return cq.release();
}

Status SoftnicDevice::destroy_cq(ibv_cq* base) {
  auto* cq = static_cast<CompletionQueue*>(base);
  if (cq->users != 0) {
    return verb_error("ibv_destroy_cq", EBUSY, fmt::format("{} QPs use it", cq->users));
  }
  cq->channel->remove(cq);
  std::lock_guard lock(mutex_);
  bells_[cq->bell_index] = false;
  delete cq;
  return {};
}

Result<ibv_srq*> SoftnicDevice::create_srq(uint32_t entries, uint32_t max_sge) {
  if (entries == 0 || entries > kMaxCompletions || max_sge > kMaxRecvSge) {
    return invalid("ibv_create_srq", fmt::format("softnic, {} entries", entries));
  }
  auto* srq = new SharedReceiveQueue(entries, max_sge);
  srq->context = &context_;
  srq->pd = &pd_;
  return srq;
}

Status SoftnicDevice::destroy_srq(ibv_srq* base) {
  auto* srq = static_cast<SharedReceiveQueue*>(base);
  if (srq->users != 0) {
    return verb_error("ibv_destroy_srq", EBUSY, fmt::format("{} QPs use it", srq->users.load()));
  }
  delete srq;
  return {};
}

// Queue pairs.

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
  auto& qp = *static_cast<QueuePair*>(base);
  break_queue_pair(qp, kVendorLocal, {});
  return {};
}

ibv_qp_state SoftnicDevice::qp_state(ibv_qp* base) {
  return static_cast<QueuePair*>(base)->core.state();
}

Result<QuiesceToken> SoftnicDevice::retire_qp(ibv_qp* base) {
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
  return qp.channel->retire(qp) ? kQuiescedNow : token;
}

void SoftnicDevice::destroy(QueuePair* qp) {
  // A peer that is not quiet may still write to the ring and to our block: then they stay
  // unused for the life of the device.
  const bool quiet = qp->peer_quiet;
  if (quiet && qp->ring != nullptr) control_->free_ring(qp->ring, qp->ring_depth);
  for (const Staged& staged : qp->staged) control_->free_staging(staged.place, staged.bytes);
  const uint32_t index = qp->core.number() & (kMaxQueuePairs - 1);
  std::lock_guard lock(mutex_);
  qps_[index].reset();
  if (quiet) free_qps_.push_back(index);
  --live_qps_;
  forget_data_if_unused();
}

}  // namespace be::softnic
