// FaultyDevice: a device between the transport and another one that lets each set-up call fail by
// order, counts what has been created and not destroyed, sends packets to nowhere, and hands out
// completions at the worst moment or with fields that mean nothing.
//
// Used by one thread at a time.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "be/verbs/device.h"

namespace be::test {

enum class SetUpCall : uint8_t {
  kCreateEventChannel,
  kCreateThreadDomain,
  kCreateCq,
  kCreateQp,
  kRegisterMemory,         // of blocks
  kRegisterKeepaliveWord,  // a region of its own, of 64 bytes
  kPostReceives,
  kLocalEndpoint,
  kReachable,
  kConnectQp,
  kConnected,  // connect_qp goes well, and ends with a failure later
};
inline constexpr SetUpCall kSetUpCalls[] = {
    SetUpCall::kCreateEventChannel,
    SetUpCall::kCreateThreadDomain,
    SetUpCall::kCreateCq,
    SetUpCall::kCreateQp,
    SetUpCall::kRegisterKeepaliveWord,
    SetUpCall::kPostReceives,
    SetUpCall::kLocalEndpoint,
    SetUpCall::kReachable,
    SetUpCall::kConnectQp,
    SetUpCall::kConnected,
};
const char* name_of(SetUpCall call);

class FaultyDevice final : public Device {
 public:
  explicit FaultyDevice(std::unique_ptr<Device> inner) : inner_(std::move(inner)) {}
  ~FaultyDevice() override;

  // The next `times` calls of this kind fail.
  void fail(SetUpCall call, int times) { failures_left_[call] = times; }
  int failures_left(SetUpCall call) { return failures_left_[call]; }
  // What is connected from now on sends its packets to nobody; set-up goes well.
  void lose_packets(bool lose) { lose_packets_ = lose; }

  // What a failed completion does not define is garbage.
  void poison_failures(bool poison) { poison_failures_ = poison; }
  struct Failures {
    int causes = 0;  // completions that failed for a reason of their own
    int flushes = 0;
  };
  const Failures& failures() const { return failures_; }  // handed out while poisoned

  // Every completion comes between the last poll and the arming: without an event, to be seen by
  // the first poll after that.
  void hide_until_armed(bool hide) { hide_until_armed_ = hide; }
  int taken_after_arming() const { return taken_after_arming_; }

  struct Created {
    int channels = 0;
    int thread_domains = 0;
    int completion_queues = 0;
    int queue_pairs = 0;
    int keepalive_words = 0;
    bool operator==(const Created&) const = default;
  };
  const Created& created() const { return created_; }  // and not destroyed

  DeviceKind kind() const override { return inner_->kind(); }
  const std::string& name() const override { return inner_->name(); }
  const DeviceLimits& limits() const override { return inner_->limits(); }
  ibv_pd* pd() override { return inner_->pd(); }
  Result<ibv_mr*> register_memory(void* address, size_t length, int access,
                                  const Backing& backing) override;
  Status deregister(ibv_mr* region) override;
  Result<std::unique_ptr<EventChannel>> create_event_channel() override;
  Result<ibv_td*> create_thread_domain() override;
  void destroy_thread_domain(ibv_td* domain) override;
  Result<ibv_cq*> create_cq(uint32_t entries, EventChannel* channel, void* user,
                            ibv_td* thread_domain) override;
  Status destroy_cq(ibv_cq* cq) override;
  Result<ibv_srq*> create_srq(uint32_t entries, uint32_t max_sge) override {
    return inner_->create_srq(entries, max_sge);
  }
  Status destroy_srq(ibv_srq* srq) override { return inner_->destroy_srq(srq); }
  Result<QueuePair> create_qp(const QueuePairOptions& options) override;
  Result<EndpointBlob> local_endpoint(ibv_qp* qp) override;
  Status reachable(const EndpointBlob& remote) override;
  Status connect_qp(ibv_qp* qp, const EndpointBlob& remote, const uint8_t secret_token[16],
                    bool initiator, const ConnectOptions& options) override;
  Status fail_qp(ibv_qp* qp) override { return inner_->fail_qp(qp); }
  ibv_qp_state qp_state(ibv_qp* qp) override { return inner_->qp_state(qp); }
  Result<QuiesceToken> retire_qp(ibv_qp* qp) override;

 private:
  class Channel;
  static constexpr size_t kKeepaliveBytes = 64;

  bool fails(SetUpCall call);
  void hook(ibv_context* context);
  static int post_recv(ibv_qp* qp, ibv_recv_wr* request, ibv_recv_wr** bad);
  static int poll_cq(ibv_cq* cq, int count, ibv_wc* completions);
  static int req_notify_cq(ibv_cq* cq, int solicited_only);
  void poison(ibv_wc& completion);

  const std::unique_ptr<Device> inner_;
  std::map<SetUpCall, int> failures_left_;
  bool lose_packets_ = false;
  bool poison_failures_ = false;
  Failures failures_;
  bool hide_until_armed_ = false;
  bool just_armed_ = false;
  int taken_after_arming_ = 0;
  Created created_;
};

}  // namespace be::test
