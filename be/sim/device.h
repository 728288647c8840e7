// The third device (blueprint 4, 10): an RNIC in virtual time, one per Host.
//
// The control path is that of verbs/device.h; the data path is the RC core with a wire of events
// between (rnic.cc: sending, rnic_receive.cc: arriving). Its faults come by order of the cluster:
// a work request that fails, a host that is killed.
//
// One thread. Outlives its queue pairs; whatever is left when it is destroyed is a violation.
#pragma once

#include <infiniband/verbs.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "be/sim/queue_pair.h"
#include "be/verbs/rc/memory_key.h"

namespace be::sim {

class RnicDevice final : public Device {
 public:
  RnicDevice(Host& host, Fabric& fabric);
  ~RnicDevice() override;

  DeviceKind kind() const override { return DeviceKind::kSimulated; }
  const std::string& name() const override { return name_; }
  const DeviceLimits& limits() const override { return limits_; }
  ibv_pd* pd() override { return &pd_; }
  Result<ibv_mr*> register_memory(void* address, size_t length, int access,
                                  const Backing& backing) override;
  Status deregister(ibv_mr* region) override;
  Result<std::unique_ptr<EventChannel>> create_event_channel() override;
  Result<ibv_td*> create_thread_domain() override { return nullptr; }
  void destroy_thread_domain(ibv_td*) override {}
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

  // --- Faults
  void fail_after(uint64_t work_requests) { fail_after_ = work_requests; }  // 0: none
  void break_queue_pairs(const Status& why);  // IBV_EVENT_QP_FATAL for each
  void on_host_killed();                      // its QPs are gone; peers learn of it as Touch says
  void on_host_walled();                      // its own code learns that its QPs are broken

  // Completions that a loop which sleeps in `poller` does not see and is not told of.
  bool slept_over(const VirtualPoller& poller) const;

  // The most WRITE bytes that any QP of ours had posted and not completed.
  uint64_t most_written() const { return most_written_; }

  // --- By the data path (rnic.cc)
  int post_send(QueuePair& qp, ibv_send_wr* request, ibv_send_wr** bad);
  int post_recv(QueuePair& qp, ibv_recv_wr* request, ibv_recv_wr** bad);
  static int post_srq_recv(SharedReceiveQueue& srq, ibv_recv_wr* request, ibv_recv_wr** bad);

 private:
  // Events of ours: nothing once we are destroyed.
  void at(Time when, Task action);
  void after(Nanoseconds delay, Task action) { at(simulation_.now() + delay, std::move(action)); }

  bool gone() const;  // of a dead or walled host: nothing of it reaches anybody
  const rc::Region* find(uint32_t key, uint64_t address, uint64_t length, uint32_t needed) const;

  // rnic.cc
  void give_turn(QueuePair& qp);
  void transmit();
  void send_packet(QueuePair& qp);
  bool gather(Packet& packet, const PostedSend& send) const;
  void watch_progress(QueuePair& qp);
  void acknowledged(uint32_t number, uint32_t count, ibv_wc_status status);
  void report(QueuePair& qp);
  void after_failure(QueuePair& qp);
  void tell_last_receive(QueuePair& qp);
  static void settle(QueuePair& qp);

  // rnic_receive.cc
  void arrive(Packet packet);
  void take(Packet packet);
  void process(QueuePair& qp);
  bool execute(QueuePair& qp, const Packet& packet);  // false: it waits, or qp has failed
  bool receiver_not_ready(QueuePair& qp, const Packet& packet);
  void answer(QueuePair& qp, ibv_wc_status status);
  static void fetch(Packet& packet);
  bool store(const Packet& packet) const;
  bool scatter(QueuePair& qp, const Packet& packet) const;

  // quiesce.cc
  void tell_connected(uint32_t number, const Status& how);
  void ask_for_confirmation(const QueuePair& qp);
  void peer_has_reset(uint32_t number, uint32_t by);
  void peer_has_died(uint32_t number);
  void confirmed(uint32_t number);
  void break_queue_pair(QueuePair& qp, const Status& why);

  const std::shared_ptr<RnicDevice*> self_ = std::make_shared<RnicDevice*>(this);
  Host& host_;
  Fabric& fabric_;
  Simulation& simulation_;
  const std::string name_;
  DeviceLimits limits_;
  ibv_device ibv_device_{};
  ibv_context context_{};
  ibv_pd pd_{};

  std::map<uint32_t, rc::Region> regions_;  // by key
  uint32_t last_region_ = 0;
  std::map<ibv_cq*, std::shared_ptr<CompletionQueue>> queues_;
  std::map<ibv_srq*, std::unique_ptr<SharedReceiveQueue>> shared_;
  std::map<uint32_t, std::unique_ptr<QueuePair>> queue_pairs_;  // by number
  std::deque<uint32_t> turns_;                                  // QPs with something to send
  bool transmitting_ = false;
  Time free_at_{};  // of our end of the wire
  QuiesceToken last_token_ = 0;
  uint64_t fail_after_ = 0;
  uint64_t most_written_ = 0;
};

}  // namespace be::sim
