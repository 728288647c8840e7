// One RDMA device: the control path as an abstract class, three kinds behind it.
//
//   hardware  libibverbs, any RNIC      verbs/hardware_device.h
//   softnic   shared memory, one host   softnic/softnic_device.h
//   sim       virtual time              sim/
//
// The data path is NOT here. ibv_post_send, ibv_post_recv, ibv_post_srq_recv, ibv_poll_cq and
// ibv_req_notify_cq of <infiniband/verbs.h> dispatch through ibv_context.ops and may be called
// on the objects of any device. Nothing else of libibverbs may: on a context which libibverbs
// did not open, ibv_reg_mr, ibv_create_cq, ibv_query_port, ibv_get_cq_event ... crash.
//
// Threads: create_*, register_memory and deregister may be called from any thread. A queue
// pair, its completion queue and its event channel belong to one I/O thread; everything that
// names a QP, CQ or EventChannel is called there. Devices outlive all that they created.
//
// Failure: a Status that names the verb, the errno by name, and the object.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "be/base/status.h"

namespace be {

enum class DeviceKind : uint8_t { kHardware = 1, kSoftnic = 2, kSimulated = 3 };
std::string_view device_kind_name(DeviceKind kind);

struct DeviceLimits {
  uint32_t max_queue_depth = 0;  // work requests in one SQ or RQ
  uint32_t max_completions = 0;  // entries of one CQ
  uint32_t max_send_sge = 0;
  uint32_t max_recv_sge = 0;
  uint32_t max_inline_bytes = 0;
  uint32_t max_queue_pairs = 0;
  // Large WRITEs of one QP that move more bytes when they are posted together, 0: any number. One
  // where the processor copies them at its polls: more would only stand in the way of others.
  uint32_t useful_writes = 0;
};

// Where registered memory comes from. A softnic peer maps the descriptor; others ignore it.
struct Backing {
  int fd = -1;          // -1: private memory of the user, no shared file behind it
  uint64_t offset = 0;  // of `address` within the file
};

// What lies behind a QP, opaque to everybody but the device kind that wrote it: hardware puts
// QPN, PSN, GID and MTU here; softnic its rendezvous name, boot id and uid. At most 512 bytes.
using EndpointBlob = std::vector<uint8_t>;
inline constexpr size_t kMaxEndpointBytes = 512;

struct QueuePairOptions {
  ibv_cq* send_cq = nullptr;
  ibv_cq* recv_cq = nullptr;
  ibv_srq* srq = nullptr;  // null: a receive queue of its own
  uint32_t send_depth = 0;
  uint32_t recv_depth = 0;
  uint32_t max_send_sge = 1;
  uint32_t max_recv_sge = 1;
  uint32_t max_inline_bytes = 0;  // in: wish; stepped down to what the device grants
  void* user = nullptr;           // ibv_qp::qp_context, comes back in events
  ibv_td* thread_domain = nullptr;
};

struct QueuePair {
  ibv_qp* qp = nullptr;
  uint32_t max_inline_bytes = 0;  // granted
};

struct ConnectOptions {
  uint8_t rnr_retry = 0;  // dedicated receive queues: a receive is always posted (blueprint 6)
  uint8_t min_rnr_timer = 12;
};

// Something that happened; what it refers to is told by `kind`.
struct DeviceEvent {
  enum class Kind : uint8_t {
    kCompletion,      // cq: has completions since it was armed; armed no longer
    kConnected,       // qp: connect_qp has ended, `status` says how
    kQpFatal,         // qp: broken by the device or by the peer's death; `status` says why
    kLastWqeReached,  // qp: with an SRQ, no more completions of receives will come
    kQuiesced,        // token: see retire_qp
    kDeviceRemoved,   // the whole device is gone; `status` says why
  };
  Kind kind = Kind::kCompletion;
  ibv_cq* cq = nullptr;
  ibv_qp* qp = nullptr;  // with kQuiesced: null
  uint64_t token = 0;
  Status status;
};

// What an I/O thread waits on: one descriptor for all events of its CQs and QPs.
class EventChannel {
 public:
  virtual ~EventChannel() = default;
  virtual int fd() const = 0;  // readable while take_events would return something
  // Appends what has happened and acknowledges it. Never blocks.
  virtual void take_events(std::vector<DeviceEvent>& out) = 0;
};

// Promise about the memory that a retired QP could reach.
using QuiesceToken = uint64_t;
inline constexpr QuiesceToken kQuiescedNow = 0;

class Device {
 public:
  virtual ~Device() = default;

  virtual DeviceKind kind() const = 0;
  virtual const std::string& name() const = 0;  // "mlx5_0", "softnic"
  virtual const DeviceLimits& limits() const = 0;
  virtual ibv_pd* pd() = 0;  // the device's only protection domain (paper table 3)

  // Memory. `access` is IBV_ACCESS_* bits; a device may ignore IBV_ACCESS_RELAXED_ORDERING. The
  // region is keyed by {lkey, rkey}; keys carry a generation, so a stale key of a region that is
  // gone is refused and never hits another one.
  virtual Result<ibv_mr*> register_memory(void* address, size_t length, int access,
                                          const Backing& backing) = 0;
  virtual Status deregister(ibv_mr* region) = 0;

  virtual Result<std::unique_ptr<EventChannel>> create_event_channel() = 0;

  // Null where the provider has none (not an error): then posting may take shared locks.
  virtual Result<ibv_td*> create_thread_domain() = 0;
  virtual void destroy_thread_domain(ibv_td* domain) = 0;

  // `user` becomes ibv_cq::cq_context. The CQ must be destroyed before its channel.
  virtual Result<ibv_cq*> create_cq(uint32_t entries, EventChannel* channel, void* user,
                                    ibv_td* thread_domain) = 0;
  virtual Status destroy_cq(ibv_cq* cq) = 0;  // all its events acknowledged, no QP uses it

  virtual Result<ibv_srq*> create_srq(uint32_t entries, uint32_t max_sge) = 0;
  virtual Status destroy_srq(ibv_srq* srq) = 0;

  // A queue pair in INIT: receives may be posted at once.
  virtual Result<QueuePair> create_qp(const QueuePairOptions& options) = 0;
  virtual Result<EndpointBlob> local_endpoint(ibv_qp* qp) = 0;
  // Whether `remote` can be reached from here at all (same host, same link ...); cheap, no I/O.
  virtual Status reachable(const EndpointBlob& remote) = 0;

  // To RTS. `secret_token` (16 bytes, from the TCP handshake) is what both ends must present to
  // each other, once. `initiator`: exactly one end says true. Ends with kConnected on the
  // channel of the QP's recv_cq, within a bounded time; may also fail at once.
  virtual Status connect_qp(ibv_qp* qp, const EndpointBlob& remote, const uint8_t secret_token[16],
                            bool initiator, const ConnectOptions& options) = 0;

  // To ERR: all posted work is flushed to the CQs.
  virtual Status fail_qp(ibv_qp* qp) = 0;
  virtual ibv_qp_state qp_state(ibv_qp* qp) = 0;

  // Destroys the QP. Its completions still in the CQ are dropped, so poll them first if they
  // matter. The peer, or the NIC, may still be touching memory that this QP exposed: the token
  // tells when no longer. kQuiescedNow: already (hardware: a destroyed QP is quiet; softnic: the
  // peer has confirmed the reset or has exited). Otherwise kQuiesced{token} comes later on the
  // channel of the recv_cq; until then buffers exposed to the peer must not be reused.
  virtual Result<QuiesceToken> retire_qp(ibv_qp* qp) = 0;
};

}  // namespace be
