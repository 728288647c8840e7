// Inside of Engine: its state, and its verbs by file.
//
//   engine_setup.cc    create, connect, terms          engine_receive.cc  receives, credits, memory
//   engine_send.cc     send, close_socket, scheduling  engine_grants.cc   large messages, both ends
//   engine_post.cc     work requests, posting          engine_complete.cc completions, on_sent
//   engine_failure.cc  failing, draining, quiescing    engine_check.cc    invariants
//
// Callbacks to the user may re-enter send, close_socket and fail. So each is made when the state
// is consistent, and nothing is remembered over it but members.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "be/base/fork.h"
#include "be/base/ring_queue.h"
#include "be/engine/credit_ledger.h"
#include "be/engine/engine.h"
#include "be/engine/frame.h"
#include "be/engine/grant_table.h"
#include "be/engine/keepalive.h"
#include "be/engine/outgoing.h"
#include "be/engine/receive_ring.h"
#include "be/engine/scheduler.h"
#include "be/engine/send_window.h"
#include "be/engine/shared_receives.h"
#include "be/engine/slot_table.h"
#include "be/engine/socket_table.h"
#include "be/engine/work_request_chain.h"

namespace be {

// Members stand by meaning, not by size.
// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding)
struct Engine::Impl final : private SharedReceives::User {
  // --- constants
  static constexpr uint32_t kMaxSge = 1 + Message::kMaxParts;  // header, parts
  static constexpr uint32_t kHeaderStride = 128;  // of a slot's header memory; lines not shared
  static constexpr uint32_t kCopyBreakBytes = 256;
  static constexpr uint32_t kControlReserve = 1;  // chain slots that data leaves to control
  static constexpr uint32_t kMaxQueued = 4096;    // messages of one socket
  static constexpr uint32_t kReceiveBit = 1u << 31;
  static constexpr Nanoseconds kDrainBound = 1s;
  static constexpr Nanoseconds kMemoryRetry = 10ms;  // should on_free have been missed

  // --- engine_setup.cc
  Impl(const Resources& resources, const EngineOptions& options, EngineUser* user);
  ~Impl();
  Status set_up();
  Status share_receives();
  Status make_queue_pair();
  Status make_memory();
  Status fill_receives();
  Status connect(const EngineTerms& remote, const EndpointBlob& endpoint,
                 const uint8_t secret_token[16], bool initiator);
  void on_connected(const Status& status, Time now);
  void classify_queued();

  // --- engine_send.cc
  Status send(SocketId socket, FrameKind kind, MessageClass klass, Message& message,
              uint64_t cookie);
  Status find_keys(OutgoingMessage& message, const Message& from) const;
  void close_socket(SocketId socket, const Status& status);
  void abandon(uint32_t slot, OutgoingMessage* message, const Status& status);
  void find_unrequested(SocketQueue& queue, OutgoingMessage* from);
  bool is_large(uint32_t total) const { return total > small_limit_; }
  void schedule();
  void wake_parked();
  bool take_turn(uint32_t slot);  // false: the window is closed
  bool window_open(uint32_t slot, uint32_t bytes);

  // --- engine_post.cc
  struct SendSlot;
  SendSlot& next_slot(uint32_t bytes);
  uint8_t* header_of(uint32_t slot) { return header_memory_ + size_t{slot} * kHeaderStride; }
  FrameHeader control_header(FrameType type, uint32_t value) const;
  void prepare_control(const FrameHeader& header, OutgoingMessage* message = nullptr,
                       const GrantedMemory* memory = nullptr);
  void prepare_send(OutgoingMessage* message);
  uint32_t fragment_length(const OutgoingMessage& message) const;
  void prepare_fragment(OutgoingMessage* message);
  void prepare_keepalive();
  bool post();

  // --- engine_receive.cc
  void on_receive(const ibv_wc& completion);
  void on_shared_receive(const ibv_wc& completion);
  void on_received(const ibv_wc& completion, Buffer buffer);
  void keep(Buffer buffer);       // not handed up: it can be posted again
  void keep_data(Buffer buffer);  // ... and a credit was spent for it
  void on_send_frame(Buffer buffer, uint32_t length);
  void on_data(const FrameHeader& header, Buffer buffer);
  void on_control(const FrameHeader& header, Buffer buffer);
  void on_credits_back(uint32_t credits);
  bool take_cancels_seen(uint8_t taken);
  bool repost_receives();
  bool take_credits();
  void on_receives_replaced() override;
  bool spare_for_data();
  void link_receive(Buffer buffer);
  Status post_receives();
  void stall_on_memory(int what);
  void retry_memory(Time now);

  // --- engine_grants.cc
  void on_write_request(const FrameHeader& header);
  void on_write_response(const FrameHeader& header, const GrantedMemory& memory);
  void on_grant_cancel(GrantId grant);
  void on_grant_done(GrantId grant);
  void on_written(GrantId grant);
  void answer_write_requests();
  bool answer_one(MessageClass klass);  // false: it has to wait
  struct WaitingRequest;
  bool out_of_patience(WaitingRequest& request);
  void queue_controls();
  void give_back_credits();
  void refuse_and_cancel(SocketId socket);
  void forget_granted(OutgoingMessage* message);

  // --- engine_complete.cc
  void on_completion(const ibv_wc& completion);
  void on_send_completion(const ibv_wc& completion);
  void end_range(const WorkRequestChain::Range& range);
  void finish(OutgoingMessage* message, const Status& status);
  void finish_in_flight(OutgoingMessage* message, const Status& status);
  void deliver();

  // --- engine.cc
  bool progress(Time now);
  void tick(Time now);
  Time next_tick() const;
  uint64_t wr_id(uint32_t index, uint32_t direction) const {
    return uint64_t{resources_.engine_index} << 32 | direction | index;
  }

  // --- engine_failure.cc
  void fail(const Status& why);
  Status closed_status() const;  // why nothing is taken any more
  void fail_protocol(const char* what, const char* field);
  void fail_messages();
  void advance_failure(Time now);
  bool drained() const { return chain_.in_flight() == 0 && receives_drained(); }
  bool receives_drained() const {
    return shared_ != nullptr ? no_more_receives_ : ring_.posted() == 0;
  }
  void on_last_receive();
  void on_receives_drained() override;
  void retire();
  void on_quiesced(QuiesceToken token);
  void release();

  // --- engine_check.cc
  const char* broken_invariant() const;  // null: none
  void check_invariants() const;

  // --- who we are
  const Resources resources_;
  const EngineOptions options_;
  EngineUser* const user_;
  const ForkGuard fork_guard_;
  const ForkWatcher fork_watcher_;
  State state_ = State::kInit;
  ibv_qp* qp_ = nullptr;
  Time now_{};
  bool dirty_ = false;  // progress() may find something to do
  EngineTerms local_;
  EngineTerms remote_;

  // --- sending
  struct SendSlot {
    ibv_send_wr wr;
    ibv_sge sge[kMaxSge];
    OutgoingMessage* message;  // done with this work request; else null
    uint32_t window_bytes;
    enum class Kind : uint8_t { kPlain, kFragment, kKeepalive } kind;
  };
  WorkRequestChain chain_;
  std::vector<SendSlot> send_slots_;
  uint8_t* header_memory_ = nullptr;  // kHeaderStride for each slot, from the pool
  uint32_t header_lkey_ = 0;
  uint32_t inline_bytes_ = 0;
  uint32_t fragment_bytes_ = 0;  // S
  uint32_t fragment_limit_ = 0;  // fragments on their way at a time
  uint32_t fragments_in_flight_ = 0;
  uint32_t small_limit_ = 0;  // largest SEND of data, header included
  SendWindow window_;
  CreditLedger credits_{2};
  Scheduler scheduler_;
  SocketTable sockets_;
  MessagePool messages_;
  MessageList done_;      // on_sent is still to be called
  MessageList retained_;  // told of, but the device may still read them: until kDead
  uint32_t queued_ = 0;   // messages in the sockets' queues

  // --- large messages, sender
  SlotTable write_requests_;                 // by tag: unanswered ones
  std::vector<OutgoingMessage*> requested_;  // by tag; null: abandoned meanwhile
  std::vector<OutgoingMessage*> granted_;    // grants that we hold, not all posted
  struct GrantDone {
    GrantId grant = 0;
    OutgoingMessage* message = nullptr;  // done when this has been sent
  };
  RingQueue<GrantDone> grants_done_;
  uint8_t cancels_taken_ = 0;

  // --- large messages, receiver
  struct WaitingRequest {
    uint32_t tag = 0;
    SocketId socket = 0;
    uint32_t length = 0;
    Code refusal = Code::kOk;  // decided meanwhile
    Time stalled = kNever;     // since when it waits for memory
  };
  struct OpenGrant {
    Buffer buffer;
    SocketId socket = 0;
    bool cancelled = false;
  };
  GrantTable grants_;
  std::vector<OpenGrant> open_grants_;  // by slot
  RingQueue<WaitingRequest> waiting_[kMessageClasses];
  RingQueue<GrantId> cancels_;  // to be sent
  uint32_t cancel_limit_ = 0;   // c
  uint8_t cancels_sent_ = 0;    // modulo 256, as cancels_seen_
  uint8_t cancels_seen_ = 0;    // by the peer

  // --- receiving
  ReceiveRing ring_;
  SharedReceives* const shared_;  // null: receives of our own; those below are not used else
  SharedReceives::Id share_ = CreditDealer::kNobody;
  bool no_more_receives_ = false;        // will complete: the queue pair is in error
  uint32_t credits_at_tick_ = 0;         // spent by then
  bool credits_idle_ = false;            // since the last tick: what is above the least goes back
  std::vector<Buffer> receive_buffers_;  // by slot: posted
  std::vector<Buffer> spares_;           // consumed and not handed up
  std::vector<ibv_recv_wr> receive_wrs_;
  std::vector<ibv_sge> receive_sges_;
  uint32_t receives_linked_ = 0;

  // --- memory
  struct MemorySignal {
    std::atomic<bool> freed{false};
    std::function<void()> wake;
  };
  static constexpr int kReceiveStall = kMessageClasses;  // after one for each class of grants
  bool stalled_[kMessageClasses + 1] = {};
  std::shared_ptr<MemorySignal> signal_;
  uint64_t on_free_id_ = 0;  // while we have asked to be told
  Time memory_retry_ = kNever;

  // --- keepalive
  uint64_t* keepalive_word_ = nullptr;  // 64 bytes from the pool; the peer writes it
  ibv_mr* keepalive_region_ = nullptr;  // our own, where the device can have two over one place
  std::optional<Keepalive> keepalive_;
  uint64_t keepalive_write_ = 0;  // to be sent; 0: nothing

  // --- failure
  Status failure_;
  Time drain_until_ = kNever;
  bool overdue_ = false;  // it has not drained in its time
  QuiesceToken quiesce_token_ = kQuiescedNow;

  EngineStats stats_;
};

}  // namespace be
