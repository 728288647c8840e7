// The softnic device behind verbs/device.h: owns the control memory, keys, peers and QPs.
//
// The tables are guarded by one lock, off the data path; what they hold is used by its I/O
// thread. The contracts are those of verbs/device.h.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "be/base/fork.h"
#include "be/softnic/completion_queue.h"
#include "be/softnic/control_memory.h"
#include "be/softnic/pacing.h"
#include "be/softnic/peer.h"
#include "be/softnic/queue_pair.h"
#include "be/softnic/region_table.h"
#include "be/softnic/softnic_device.h"
#include "be/verbs/errors.h"
#include "be/verbs/rc/receive_queue.h"

namespace be::softnic {

inline constexpr uint32_t kMaxRecvSge = 16;

inline Status invalid(std::string_view verb, std::string_view about) {
  return verb_error(verb, EINVAL, about);
}

struct SharedReceiveQueue : ibv_srq {
  SharedReceiveQueue(uint32_t entries, uint32_t max_sge) : ibv_srq{}, core(entries, max_sge) {}
  rc::ReceiveQueue core;
  std::atomic<uint32_t> users{0};
};

class SoftnicDevice final : public Device {
 public:
  static Result<std::unique_ptr<Device>> open(const SoftnicOptions& options);
  ~SoftnicDevice() override;

  DeviceKind kind() const override { return DeviceKind::kSoftnic; }
  const std::string& name() const override { return name_; }
  const DeviceLimits& limits() const override { return limits_; }
  ibv_pd* pd() override { return &pd_; }
  Result<ibv_mr*> register_memory(void* address, size_t length, int access,
                                  const Backing& backing) override;
  Status deregister(ibv_mr* region) override;
  Result<std::unique_ptr<EventChannel>> create_event_channel() override;
  Result<ibv_td*> create_thread_domain() override;
  void destroy_thread_domain(ibv_td* domain) override;
  Result<ibv_cq*> create_cq(uint32_t entries, EventChannel* channel, void* user,
                            ibv_td* thread_domain) override;
  Status destroy_cq(ibv_cq* cq) override;
  Result<ibv_srq*> create_srq(uint32_t entries, uint32_t max_sge) override;
  Status destroy_srq(ibv_srq* srq) override;
  Result<be::QueuePair> create_qp(const QueuePairOptions& options) override;
  Result<EndpointBlob> local_endpoint(ibv_qp* qp) override;
  Status reachable(const EndpointBlob& remote) override;
  Status connect_qp(ibv_qp* qp, const EndpointBlob& remote, const uint8_t secret_token[16],
                    bool initiator, const ConnectOptions& options) override;
  Status fail_qp(ibv_qp* qp) override;
  ibv_qp_state qp_state(ibv_qp* qp) override;
  Result<QuiesceToken> retire_qp(ibv_qp* qp) override;

  // What exists now: queue pairs, with those whose peer has not let go of them yet, and memory
  // regions. Any thread.
  struct Usage {
    uint32_t queue_pairs = 0;
    uint32_t regions = 0;
  };
  Usage usage();

  bool dead() const { return dead_; }

  ControlMemory& control() { return *control_; }
  RegionTable& regions() { return *regions_; }
  // Before the first thread domain is asked for: there are none, as with some providers.
  void forget_thread_domains() { thread_domains_ = false; }
  void count_contended_post() { contended_posts_.fetch_add(1, std::memory_order_relaxed); }
  uint64_t contended_posts() const { return contended_posts_.load(std::memory_order_relaxed); }
  void count_staging_refused() { staging_refused_.fetch_add(1, std::memory_order_relaxed); }
  SoftnicStats stats() const {
    return {.staging_refused = staging_refused_.load(std::memory_order_relaxed)};
  }
  PeerTable& peers() { return peers_; }
  uint64_t instance() const { return instance_; }
  // A duplicate of the data memfd; none: no shared memory is registered yet.
  void describe_data(UniqueFd* fd, uint64_t* size);
  void destroy(QueuePair* qp);  // it is quiet, and in no list any more

 private:
  explicit SoftnicDevice(const SoftnicOptions& options);
  void die_in_child();  // fork.h
  uint64_t shared_offset(size_t length, const Backing& backing);
  void forget_data_if_unused();
  static uint32_t join(CompletionQueue& cq, QueuePair* qp);
  static void leave(CompletionQueue& cq, QueuePair* qp, uint32_t bit);

  bool dead_ = false;
  const std::string name_ = "softnic";
  const SoftnicOptions options_;
  const ForkWatcher fork_watcher_;
  DeviceLimits limits_;
  HostIdentity host_;
  uint64_t instance_ = 0;
  ibv_device ibv_device_{};
  ibv_context context_{};
  ibv_pd pd_{};
  std::unique_ptr<ControlMemory> control_;
  std::unique_ptr<RegionTable> regions_;
  PeerTable peers_;
  Link link_;
  std::atomic<uint64_t> staging_refused_{0};

  // Posting without a thread domain takes a lock that QPs share. A model of the shared doorbell
  // registers of a real NIC, so that what it costs to forget the domain shows here too.
  std::array<std::mutex, 4> modelled_doorbell_locks_;
  std::atomic<uint64_t> contended_posts_{0};  // that found such a lock taken
  bool thread_domains_ = true;

  std::mutex mutex_;
  UniqueFd data_fd_;  // of the first pool that registers
  uint64_t data_size_ = 0;
  dev_t data_device_ = 0;
  ino_t data_inode_ = 0;
  uint32_t data_regions_ = 0;
  uint64_t next_channel_ = 1;
  QuiesceToken last_token_ = 0;
  std::vector<std::unique_ptr<QueuePair>> qps_;  // by index, the low bits of the number
  std::vector<uint16_t> qp_lives_;
  std::vector<uint32_t> free_qps_;
  uint32_t live_qps_ = 0;
  uint32_t live_regions_ = 0;
  std::vector<bool> bells_;  // in use
};

}  // namespace be::softnic
