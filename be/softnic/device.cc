#include "be/softnic/device.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>

#include "be/base/log.h"
#include "be/softnic/data_path.h"
#include "be/softnic/fork.h"
#include "be/verbs/errors.h"

namespace be {

Result<std::unique_ptr<Device>> open_softnic(const SoftnicOptions& options) {
  return softnic::SoftnicDevice::open(options);
}

SoftnicStats softnic_stats(const Device& device) {
  return static_cast<const softnic::SoftnicDevice&>(device).stats();
}

}  // namespace be

namespace be::softnic {
namespace {

// A link is to send on while nobody polls, but what waits in front of it delays what others post.
constexpr uint32_t kWritesForLink = 4;

}  // namespace

Result<std::unique_ptr<Device>> SoftnicDevice::open(const SoftnicOptions& options) {
  if (options.max_queue_pairs == 0 || options.max_queue_pairs > kMaxQueuePairs) {
    return error(Code::kInvalidArgument, "softnic: max_queue_pairs {} is not in 1 ... {}",
                 options.max_queue_pairs, kMaxQueuePairs);
  }
  if (options.link_bits_per_second != 0 && options.link_bits_per_second < kMinLinkRate) {
    return error(Code::kInvalidArgument, "softnic: a link of {} bits per second is below {}",
                 options.link_bits_per_second, kMinLinkRate);
  }
  if (options.completion_delay < 0ns || options.completion_delay > kMaxCompletionDelay) {
    return error(Code::kInvalidArgument, "softnic: completion_delay is {} ns, at most {}",
                 options.completion_delay.count(), kMaxCompletionDelay.count());
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

SoftnicDevice::SoftnicDevice(const SoftnicOptions& options)
    : options_(options),
      fork_watcher_([](void* self) { static_cast<SoftnicDevice*>(self)->die_in_child(); }, this),
      link_(options.link_bits_per_second) {
  limits_ = {.max_queue_depth = kMaxQueueDepth,
             .max_completions = kMaxCompletions,
             .max_send_sge = kMaxPairs,
             .max_recv_sge = kMaxRecvSge,
             .max_inline_bytes = kSlotPayload,
             .max_queue_pairs = options.max_queue_pairs,
             .useful_writes = link_.paces() ? kWritesForLink : 1};
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

SoftnicDevice::~SoftnicDevice() { assert(live_qps_ == 0 || dead_); }

void SoftnicDevice::die_in_child() {
  dead_ = true;
  context_.ops.post_send = [](ibv_qp*, ibv_send_wr* request, ibv_send_wr** bad) {
    *bad = request;
    return EIO;
  };
  context_.ops.post_recv = [](ibv_qp*, ibv_recv_wr* request, ibv_recv_wr** bad) {
    *bad = request;
    return EIO;
  };
  context_.ops.post_srq_recv = [](ibv_srq*, ibv_recv_wr* request, ibv_recv_wr** bad) {
    *bad = request;
    return EIO;
  };
  context_.ops.poll_cq = [](ibv_cq*, int, ibv_wc*) { return -1; };
  context_.ops.req_notify_cq = [](ibv_cq*, int) { return EIO; };
}

SoftnicDevice::Usage SoftnicDevice::usage() {
  std::lock_guard lock(mutex_);
  return {.queue_pairs = live_qps_, .regions = live_regions_};
}

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
    data_device_ = status.st_dev;
    data_inode_ = status.st_ino;
  } else if (status.st_ino != data_inode_ || status.st_dev != data_device_) {
    return kPrivateMemory;
  }
  if (backing.offset > data_size_ || length > data_size_ - backing.offset) return kPrivateMemory;
  return backing.offset;
}

Result<ibv_mr*> SoftnicDevice::register_memory(void* address, size_t length, int access,
                                               const Backing& backing) {
  if (dead_) return forked_status();
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
  ++live_regions_;
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
  if (dead_) return {};
  std::lock_guard lock(mutex_);
  if (region == nullptr || !regions_->remove(region->lkey))
    return invalid("ibv_dereg_mr", "softnic");
  if (region->handle) --data_regions_;
  --live_regions_;
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
  if (dead_) return forked_status();
  std::unique_lock lock(mutex_);
  const uint64_t id = next_channel_++;
  lock.unlock();
  BE_ASSIGN_OR_RETURN(std::unique_ptr<Channel> channel, Channel::create(this, id));
  return std::unique_ptr<EventChannel>(std::move(channel));
}

Result<ibv_td*> SoftnicDevice::create_thread_domain() {
  return thread_domains_ ? new ibv_td{&context_} : nullptr;
}
void SoftnicDevice::destroy_thread_domain(ibv_td* domain) { delete domain; }

Result<ibv_cq*> SoftnicDevice::create_cq(uint32_t entries, EventChannel* channel, void* user,
                                         ibv_td*) {
  if (dead_) return forked_status();
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
  if (dead_) return {};
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
  if (dead_) return forked_status();
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

}  // namespace be::softnic
