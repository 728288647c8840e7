// Engine: one RC queue pair and everything that makes messages of it (paper 5.3, 5.4, 6.1, 6.3).
//
//   send() -> per-socket queues -> Scheduler -> fragments -> WorkRequestChain -> ibv_post_send
//                                     |             |
//                               CreditLedger   SendWindow
//   ibv_poll_cq (IoThread) -> on_completion -> Grants / receive ring -> EngineUser
//
// Composed of small pure machines; the engine alone talks to the device. Owned by one IoThread
// and used on its thread only. Nothing here blocks, reads a clock or allocates in the steady
// state except receive buffers from the pool.
//
// Life:  create -> [kInit] --connect()--> [kConnecting] --on_connected--> [kReady]
//        any --fail()/bad completion--> [kFailing] --both queues drained or a bounded time-->
//        [kRetired] --quiesced(qp)--> [kDead]  (may be destroyed)
//
// On failure every queued and in-flight message is completed exactly once (on_sent with a
// status) and on_engine_failed is called once; buffers the peer may still touch are kept until
// kDead (blueprint 3, 6).
//
// In a forked child every engine is kDead from the first moment (base/fork.h): send and connect
// fail with kClosed, everything else does nothing, no callback comes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "be/base/status.h"
#include "be/base/time.h"
#include "be/engine/engine_options.h"
#include "be/engine/frame_kind.h"
#include "be/memory/buffer.h"
#include "be/memory/registered_pool.h"
#include "be/verbs/device.h"

namespace be {

// The layer above (transport). Called on the I/O thread, from within on_completion, progress,
// tick or fail; it may call send() and close_socket() from there, but not destroy the engine.
class EngineUser {
 public:
  virtual void on_frame(FrameKind kind, SocketId socket, Buffer payload) = 0;
  // Exactly once for every accepted send with this cookie; the message's memory is free again
  // (or kept aside by the engine if it failed). Order: as sent, per socket, when all goes well.
  virtual void on_sent(SocketId socket, uint64_t cookie, const Status& status) = 0;
  // Exactly once, after the on_sent of every message.
  virtual void on_engine_failed(const Status& status) = 0;

 protected:
  ~EngineUser() = default;
};

struct EngineStats {
  uint64_t messages_sent = 0;
  uint64_t messages_received = 0;
  uint64_t bytes_sent = 0;
  uint64_t bytes_received = 0;
  uint64_t credit_stalls = 0;  // times that work waited for a credit
  uint64_t window_stalls = 0;  // ... for the window
  uint64_t memory_stalls = 0;  // receives or grants that waited for memory
  uint32_t open_grants = 0;
  uint32_t queued_messages = 0;
};

class SharedReceives;

class Engine {
 public:
  enum class State : uint8_t { kInit, kConnecting, kReady, kFailing, kRetired, kDead };

  struct Resources {
    Device* device = nullptr;
    RegisteredPool* pool = nullptr;
    size_t device_index = 0;  // of `device` in `pool`
    ibv_cq* cq = nullptr;     // the I/O thread's, send and receive
    ibv_td* thread_domain = nullptr;
    SharedReceives* shared_receives = nullptr;  // the I/O thread's; null: receives of its own
    uint32_t engine_index = 0;  // below 2^20; unique on the thread: names us in wr_id
    std::string peer;           // for errors: "10.0.0.2:9000"
    // Called on any thread when memory that progress() waits for has been freed: makes the I/O
    // thread call progress() soon. May come late, when the engine is gone already. Empty: such
    // work goes on at next_tick().
    std::function<void()> wake;
  };

  // wr_id = engine index << 32 | direction << 31 | producer index. (Those of an SRQ name an entry
  // of it, and qp_num the engine: shared_receives.h.)
  static uint32_t engine_index_of(uint64_t wr_id) { return static_cast<uint32_t>(wr_id >> 32); }

  // Makes the QP, allocates and posts all receives. On failure nothing is left behind.
  static Result<std::unique_ptr<Engine>> create(const Resources& resources,
                                                const EngineOptions& options, EngineUser* user);
  ~Engine();  // requires kInit or kDead

  const EngineTerms& local_terms() const;
  Result<EndpointBlob> local_endpoint() const;
  // Both ends have posted their receives ("ready") before either sends. `remote` has been
  // checked. The device answers with kConnected, which the owner hands to on_connected.
  Status connect(const EngineTerms& remote, const EndpointBlob& endpoint,
                 const uint8_t secret_token[16], bool initiator);
  void on_connected(const Status& status, Time now);  // kReady, or failure

  // Takes the message (leaves it untouched if it refuses: kResourceExhausted when the socket's
  // queue is full, kClosed when failing, kInvalidArgument when larger than the peer takes).
  // Allowed from kInit on: it waits for kReady. Work is posted by the next progress().
  Status send(SocketId socket, FrameKind kind, MessageClass klass, Message& message,
              uint64_t cookie);

  // Messages of this socket that are queued and not begun are completed with `status`; what has
  // begun runs to its end. What the peer is still sending on this socket is refused or cancelled
  // where that can be. A socket needs no other end: the engine keeps nothing of an idle one.
  void close_socket(SocketId socket, const Status& status);

  // Its wr_id names this engine, or its qp_num if that is of an SRQ.
  void on_completion(const ibv_wc& completion);
  void on_last_receive();  // the device: our failed QP takes no more from the SRQ
  // Schedules, posts, returns credits, answers WriteRequests that waited. True if it did
  // something. `now` drives nothing but statistics and the drain bound.
  bool progress(Time now);
  bool wants_progress() const;  // cheap: there may be something that progress() can do
  void tick(Time now);          // keepalive and the drain bound; call at next_tick()
  Time next_tick() const;

  void fail(const Status& why);          // any state; first reason wins
  void on_quiesced(QuiesceToken token);  // the device's event for our QP

  State state() const;
  ibv_qp* qp() const;
  // CQ entries this engine can fill, beside those of the SRQ: full depths.
  uint32_t completions_needed() const;
  static uint32_t completions_needed(const EngineOptions& options);
  static uint32_t fragment_bytes(const EngineOptions& options, DeviceKind kind);  // in effect
  EngineStats stats() const;
  // The invariants that span the engine's machines (blueprint 6): the one that does not hold, as
  // an equation, or null. Looks at every queue.
  const char* broken_invariant() const;

 private:
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace be
