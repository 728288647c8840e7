// A softnic queue pair: the RC core between two rings.
//
//   post_send -> peer's ring (path.ring) -> the peer's poll_cq matches -> our block.acknowledged
//   poll_cq   <- our ring                <- the peer's post_send
//
//   link:  kIdle --connect_qp--> kAwaitHello | kRetryConnect | kAwaitAccept --> kOpen
//          any --peer has closed, or never was--> kClosed
//
// A retired QP lives on, without its user, until nobody can write to its ring or reach memory
// through it: the peer has sent Reset or has exited.
//
// Used on the I/O thread of its channel only.
#pragma once

#include <infiniband/verbs.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "be/base/unique_fd.h"
#include "be/softnic/channel.h"
#include "be/softnic/completion_queue.h"
#include "be/softnic/pacing.h"
#include "be/softnic/peer.h"
#include "be/softnic/rendezvous.h"
#include "be/softnic/shared_layout.h"
#include "be/verbs/rc/queue_pair.h"

namespace be::softnic {

class SoftnicDevice;

// ibv_wc::vendor_err of softnic.
enum VendorError : uint32_t {
  kVendorNone = 0,
  kVendorPeerReset = 1,  // the peer moved its QP to error or destroyed it
  kVendorPeerGone = 2,   // the peer's process has exited
  kVendorBadSlot = 3,    // the peer wrote nonsense into our ring
  kVendorLocal = 4,      // fail_qp, or retired
  kVendorOverflow = 5,   // the completion queue has overflowed
  kVendorBadPacket = 6,  // the peer said nonsense on the rendezvous connection
};

// The way to the connected peer.
struct Path {
  std::shared_ptr<Peer> peer;
  Slot* ring = nullptr;
  uint32_t ring_mask = 0;
  QueuePairBlock* block = nullptr;
  Doorbell* recv_bell = nullptr;
  Doorbell* send_bell = nullptr;
  uint32_t recv_bit = 0;
  uint32_t send_bit = 0;
  uint64_t recv_woken = 0;  // the last arming of each bell for which we have woken the owner
  uint64_t send_woken = 0;
  int event_fd = -1;
  bool same_cq = false;  // its polls see acknowledgements in our slots
};

// Work requests that cannot be executed when posted: copies of them and all they refer to.
class StoredRequests {
 public:
  StoredRequests(uint32_t depth, const rc::SendLimits& limits);
  void store(uint32_t index, const ibv_send_wr& request);
  const ibv_send_wr& at(uint32_t index) const { return requests_[index & mask_]; }

 private:
  const uint32_t mask_;
  const rc::SendLimits limits_;
  std::unique_ptr<ibv_send_wr[]> requests_;
  std::unique_ptr<ibv_sge[]> sges_;
  std::unique_ptr<uint8_t[]> inline_bytes_;
};

// Memory that peers cannot map, copied for a SEND that waits to be fetched.
struct Staged {
  uint32_t message;
  uint32_t bytes;
  uint8_t* place;
};

struct QueuePair : ibv_qp {
  enum class Link : uint8_t { kIdle, kAwaitHello, kRetryConnect, kAwaitAccept, kOpen, kClosed };

  QueuePair(const rc::QueuePairConfig& config)  // NOLINT(google-explicit-constructor)
      : ibv_qp{}, core(config), stored(config.send_depth, config.limits) {}

  bool paced() const { return pacing != nullptr && pacing->has_link(); }
  bool live() const { return link == Link::kOpen && !core.in_error(); }
  // Something for the next poll of our CQs that no peer has announced.
  void look_again() {
    recv_queue->look_again(recv_bit);
    send_queue->look_again(send_bit);
  }

  SoftnicDevice* device = nullptr;
  Channel* channel = nullptr;
  CompletionQueue* send_queue = nullptr;
  CompletionQueue* recv_queue = nullptr;
  uint32_t send_bit = 0;
  uint32_t recv_bit = 0;
  std::mutex* posting_lock = nullptr;  // null: a thread domain promises one thread
  bool with_srq = false;

  rc::QueuePair core;
  StoredRequests stored;
  std::deque<Staged> staged;
  bool deferred = false;           // in send_queue->deferred
  std::unique_ptr<Pacing> pacing;  // null: nothing is held back

  // Inbound.
  Slot* ring = nullptr;
  uint32_t ring_mask = 0;
  uint32_t ring_depth = 0;
  QueuePairBlock* block = nullptr;
  uint32_t received = 0;                 // messages matched
  uint32_t published = 0;                // of these, what the peer has been told
  bool acknowledgement_awaited = false;  // one of the untold is signalled
  bool in_unacknowledged = false;
  uint32_t rnr_attempts = 0;
  std::chrono::steady_clock::time_point rnr_next{};
  std::chrono::microseconds rnr_delay{};
  uint8_t rnr_retry = 0;  // ours, for the messages we send

  // Outbound.
  Path path;
  bool data_offered = false;  // our data memfd existed when we connected

  // Connection.
  Source source{Source::Kind::kQueuePair, this};
  Link link = Link::kIdle;
  UniqueFd socket;
  Endpoint remote;
  uint8_t token[2 * kTokenHalf] = {};
  std::chrono::steady_clock::time_point deadline{};
  bool reset_sent = false;
  bool peer_quiet = false;  // it has promised, or cannot any more
  bool retired = false;
  QuiesceToken quiesce_token = 0;
};

// The QP has just gone to ERR in its core: tells the peer and whoever waits. `why`: not ok if
// the user is to hear of it by kQpFatal.
void after_failure(QueuePair& qp, const Status& why);

// From outside of a poll: what the peer has sent is still delivered, then ERR.
void break_queue_pair(QueuePair& qp, uint32_t vendor_error, const Status& why);

}  // namespace be::softnic
