#include "be/sim/device.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "be/verbs/errors.h"

namespace be::sim {
namespace {

constexpr uint32_t kMaxEntries = 1u << 16;
constexpr uint32_t kMaxSge = 16;

Status invalid(std::string_view verb, std::string_view about) {
  return verb_error(verb, EINVAL, about);
}

}  // namespace

RnicDevice::RnicDevice(Host& host, Fabric& fabric)
    : host_(host),
      fabric_(fabric),
      simulation_(fabric.simulation()),
      name_(fmt::format("sim{}", host.index())) {
  limits_ = {.max_queue_depth = kMaxEntries,
             .max_completions = kMaxEntries,
             .max_send_sge = kMaxSge,
             .max_recv_sge = kMaxSge,
             .max_inline_bytes = fabric.options().inline_bytes,
             .max_queue_pairs = kMaxEntries};
  context_.device = &ibv_device_;
  context_.cmd_fd = -1;
  context_.async_fd = -1;
  context_.ops.post_send = [](ibv_qp* base, ibv_send_wr* request, ibv_send_wr** bad) {
    auto& qp = *static_cast<QueuePair*>(base);
    return qp.device->post_send(qp, request, bad);
  };
  context_.ops.post_recv = [](ibv_qp* base, ibv_recv_wr* request, ibv_recv_wr** bad) {
    auto& qp = *static_cast<QueuePair*>(base);
    return qp.device->post_recv(qp, request, bad);
  };
  context_.ops.post_srq_recv = [](ibv_srq* base, ibv_recv_wr* request, ibv_recv_wr** bad) {
    return post_srq_recv(*static_cast<SharedReceiveQueue*>(base), request, bad);
  };
  context_.ops.poll_cq = [](ibv_cq* cq, int count, ibv_wc* completions) {
    return static_cast<CompletionQueue*>(cq)->poll(count, completions);
  };
  context_.ops.req_notify_cq = [](ibv_cq* cq, int) {
    static_cast<CompletionQueue*>(cq)->arm();
    return 0;
  };
  pd_.context = &context_;
}

RnicDevice::~RnicDevice() {
  for (const auto& [number, qp] : queue_pairs_) fabric_.remove(number);
  if (!queue_pairs_.empty() || !regions_.empty() || !queues_.empty() || !shared_.empty()) {
    simulation_.violate(
        fmt::format("{} ends with {} queue pairs, {} regions, {} completion queues, {} SRQs", name_,
                    queue_pairs_.size(), regions_.size(), queues_.size(), shared_.size()));
  }
}

void RnicDevice::at(Time when, Task action) {
  simulation_.at(when, [alive = std::weak_ptr(self_), action = std::move(action)]() mutable {
    if (!alive.expired()) action();
  });
}

bool RnicDevice::gone() const {
  return host_.state() == Host::State::kDead || host_.state() == Host::State::kWalled;
}

// --- Memory

Result<ibv_mr*> RnicDevice::register_memory(void* address, size_t length, int access,
                                            const Backing&) {
  if (address == nullptr || length == 0) return invalid("ibv_reg_mr", name_);
  ++last_region_;
  const uint32_t key =
      rc::make_key(last_region_ & rc::kMaxKeyIndex, 1 + (last_region_ >> rc::kKeyIndexBits));
  auto* region = new ibv_mr{};
  region->context = &context_;
  region->pd = &pd_;
  region->addr = address;
  region->length = length;
  region->lkey = region->rkey = key;
  regions_[key] = {.address = reinterpret_cast<uint64_t>(address),
                   .length = length,
                   .access = static_cast<uint32_t>(access)};
  return region;
}

Status RnicDevice::deregister(ibv_mr* region) {
  if (region == nullptr || regions_.erase(region->lkey) == 0) return invalid("ibv_dereg_mr", name_);
  delete region;
  return {};
}

const rc::Region* RnicDevice::find(uint32_t key, uint64_t address, uint64_t length,
                                   uint32_t needed) const {
  const auto found = regions_.find(key);
  if (found == regions_.end() || !found->second.allows(address, length, needed)) return nullptr;
  return &found->second;
}

// --- Channels and completion queues

Result<std::unique_ptr<EventChannel>> RnicDevice::create_event_channel() {
  return std::unique_ptr<EventChannel>(std::make_unique<VirtualChannel>(host_));
}

Result<ibv_cq*> RnicDevice::create_cq(uint32_t entries, EventChannel* channel, void* user,
                                      ibv_td*) {
  if (entries == 0 || entries > kMaxEntries || channel == nullptr) {
    return invalid("ibv_create_cq", name_);
  }
  auto queue =
      std::make_shared<CompletionQueue>(fabric_, static_cast<VirtualChannel&>(*channel), entries);
  queue->context = &context_;
  queue->cq_context = user;
  queue->cqe = static_cast<int>(entries);
  ibv_cq* const made = queue.get();
  queues_[made] = std::move(queue);
  return made;
}

Status RnicDevice::destroy_cq(ibv_cq* cq) {
  if (static_cast<CompletionQueue*>(cq)->users != 0) {
    return verb_error("ibv_destroy_cq", EBUSY, name_);
  }
  queues_.erase(cq);
  return {};
}

Result<ibv_srq*> RnicDevice::create_srq(uint32_t entries, uint32_t max_sge) {
  if (entries == 0 || entries > kMaxEntries || max_sge > kMaxSge) {
    return invalid("ibv_create_srq", name_);
  }
  auto srq = std::make_unique<SharedReceiveQueue>(entries, max_sge);
  srq->context = &context_;
  srq->pd = &pd_;
  ibv_srq* const made = srq.get();
  shared_[made] = std::move(srq);
  return made;
}

Status RnicDevice::destroy_srq(ibv_srq* srq) {
  if (static_cast<SharedReceiveQueue*>(srq)->users != 0) {
    return verb_error("ibv_destroy_srq", EBUSY, name_);
  }
  shared_.erase(srq);
  return {};
}

bool RnicDevice::slept_over(const VirtualPoller& poller) const {
  return std::any_of(queues_.begin(), queues_.end(),
                     [&](const auto& entry) { return entry.second->slept_over(poller); });
}

// --- Queue pairs

Result<be::QueuePair> RnicDevice::create_qp(const QueuePairOptions& options) {
  auto* send_queue = static_cast<CompletionQueue*>(options.send_cq);
  auto* recv_queue = static_cast<CompletionQueue*>(options.recv_cq);
  auto* shared = static_cast<SharedReceiveQueue*>(options.srq);
  if (send_queue == nullptr || recv_queue == nullptr || options.send_depth == 0 ||
      options.send_depth > kMaxEntries ||
      (shared == nullptr && (options.recv_depth == 0 || options.recv_depth > kMaxEntries)) ||
      options.max_send_sge > kMaxSge || options.max_recv_sge > kMaxSge) {
    return invalid("ibv_create_qp", name_);
  }
  rc::QueuePairConfig config;
  config.number = fabric_.next_number();
  config.send_cq = &send_queue->core;
  config.recv_cq = &recv_queue->core;
  config.srq = shared == nullptr ? nullptr : &shared->core;
  config.send_depth = options.send_depth;
  config.recv_depth = options.recv_depth;
  config.max_recv_sge = options.max_recv_sge;
  config.limits = {
      .max_sge = options.max_send_sge,
      .max_inline_bytes = std::min(options.max_inline_bytes, limits_.max_inline_bytes)};
  auto qp = std::make_unique<QueuePair>(config);
  fabric_.add(config.number, qp.get());
  qp->core.move_to(IBV_QPS_INIT);
  qp->context = &context_;
  qp->qp_context = options.user;
  qp->pd = &pd_;
  qp->send_cq = send_queue;
  qp->recv_cq = recv_queue;
  qp->qp_num = config.number;
  qp->qp_type = IBV_QPT_RC;
  qp->device = this;
  qp->send_queue = send_queue;
  qp->recv_queue = recv_queue;
  qp->srq = shared;
  qp->shared = shared;
  if (shared != nullptr) ++shared->users;
  ++send_queue->users;
  ++recv_queue->users;
  ibv_qp* const made = qp.get();
  queue_pairs_[config.number] = std::move(qp);
  simulation_.note(Happening::kQueuePair, host_.index(), config.number, IBV_QPS_INIT);
  return be::QueuePair{.qp = made, .max_inline_bytes = config.limits.max_inline_bytes};
}

Result<EndpointBlob> RnicDevice::local_endpoint(ibv_qp* qp) {
  EndpointBlob blob(sizeof(uint32_t));
  std::memcpy(blob.data(), &qp->qp_num, sizeof(uint32_t));
  return blob;
}

Status RnicDevice::reachable(const EndpointBlob& remote) {
  if (remote.size() == sizeof(uint32_t)) return {};
  return error(Code::kProtocol, "{}: an endpoint of {} bytes", name_, remote.size());
}

Status RnicDevice::fail_qp(ibv_qp* base) {
  auto& qp = *static_cast<QueuePair*>(base);
  qp.core.fail(0);
  after_failure(qp);
  return {};
}

ibv_qp_state RnicDevice::qp_state(ibv_qp* qp) { return static_cast<QueuePair*>(qp)->core.state(); }

}  // namespace be::sim
