// Device over libibverbs: be/verbs/device.h says what each call does.
//
// The token of connect_qp is not used: a QP takes packets of one peer QP and PSN only. Regions
// of a thread's own parent domain are not needed: memory registered with pd() serves all.
#pragma once

#include <infiniband/verbs.h>

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "be/verbs/device.h"
#include "be/verbs/hardware/event_channel.h"
#include "be/verbs/hardware/event_router.h"
#include "be/verbs/hardware/port.h"
#include "be/verbs/hardware/port_spread.h"
#include "be/verbs/hardware/queue_pair_states.h"
#include "be/verbs/hardware_device.h"

namespace be::hardware {

class HardwareDevice : public Device {
 public:
  // Fails with the reason why the device cannot be used.
  static Result<std::unique_ptr<HardwareDevice>> open(ibv_device* device,
                                                      const HardwareOptions& options);
  ~HardwareDevice() override;

  std::string describe() const;  // what a person wants to know of a usable device
  uint32_t port_mtu_bytes() const;

  DeviceKind kind() const override { return DeviceKind::kHardware; }
  const std::string& name() const override { return name_; }
  const DeviceLimits& limits() const override { return limits_; }
  ibv_pd* pd() override { return pd_.get(); }

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

  Result<QueuePair> create_qp(const QueuePairOptions& options) override;
  Result<EndpointBlob> local_endpoint(ibv_qp* qp) override;
  Status reachable(const EndpointBlob& remote) override;
  Status connect_qp(ibv_qp* qp, const EndpointBlob& remote, const uint8_t secret_token[16],
                    bool initiator, const ConnectOptions& options) override;
  Status fail_qp(ibv_qp* qp) override;
  ibv_qp_state qp_state(ibv_qp* qp) override;
  Result<QuiesceToken> retire_qp(ibv_qp* qp) override;

 private:
  struct CloseContext {
    void operator()(ibv_context* context) const { ibv_close_device(context); }
  };
  struct FreePd {
    void operator()(ibv_pd* pd) const { ibv_dealloc_pd(pd); }
  };
  using Context = std::unique_ptr<ibv_context, CloseContext>;

  // What a queue pair is connected with.
  struct Connection {
    Port port;  // as local_endpoint told the peer
    uint32_t packet_sequence_number = 0;
    uint8_t lag_port = 0;  // taken of lag_ports_; 0: none
  };

  HardwareDevice(Context context, const HardwareOptions& options);
  Status start();
  Status probe();
  std::string about(std::string_view object) const;
  ibv_pd* pd_of(ibv_td* thread_domain);
  Result<Connection> connection_of(ibv_qp* qp);
  void choose_lag_port(ibv_qp* qp);
  bool gone() const;

  const HardwareOptions options_;
  std::string name_;
  Context context_;
  std::unique_ptr<ibv_pd, FreePd> pd_;
  DeviceLimits limits_;
  Port port_;  // as it was at open: its number stays, its address may change
  EventRouter router_;

  std::mutex mutex_;
  PortSpread lag_ports_{0};
  std::unordered_map<ibv_qp*, Connection> connections_;
  std::unordered_map<ibv_td*, ibv_pd*> parent_domains_;
};

}  // namespace be::hardware
