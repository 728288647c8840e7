// The RC core: one queue pair without a wire. States, queues, matching of receives, RNR, flush
// and completion rules. softnic puts shared memory under it, the simulator a modelled fabric.
//
//   post_send --admit--> SendQueue --(wire executes)--> acknowledge --> report_sends --> send CQ
//   (wire has a message) --> match --> complete_receive --> recv CQ
//                             |no receive: RNR
//   first bad completion, or fail() --> ERR: what is left is flushed, in order, to both CQs
//
// Rules: success of an unsignalled send makes no completion, failure always does. The first
// failure moves the QP to ERR; everything after it is flushed. In ERR new posts are flushed at
// once. After an error only wr_id, status, qp_num and vendor_err are valid.
//
// Pure: no I/O, no clock. One thread.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "be/verbs/rc/completion_queue.h"
#include "be/verbs/rc/queue_state.h"
#include "be/verbs/rc/receive_queue.h"
#include "be/verbs/rc/send_queue.h"
#include "be/verbs/rc/work_request.h"

namespace be::rc {

struct QueuePairConfig {
  uint32_t number = 0;
  CompletionQueue* send_cq = nullptr;
  CompletionQueue* recv_cq = nullptr;
  ReceiveQueue* srq = nullptr;  // null: a receive queue of its own
  uint32_t send_depth = 1;
  uint32_t recv_depth = 1;
  uint32_t max_recv_sge = 1;
  SendLimits limits;
};

// A message that has arrived, before a receive is chosen for it.
struct Arrival {
  bool write_with_imm = false;
  bool immediate = false;
  uint32_t imm_data = 0;  // network byte order, as posted
  uint32_t byte_len = 0;
  uint32_t source_qp = 0;
};

enum class RnrVerdict : uint8_t { kRetry, kGiveUp };

// `attempts` polls have found no receive, this one included (7: for ever).
constexpr RnrVerdict judge_rnr(uint8_t rnr_retry, uint32_t attempts) {
  return rnr_retry >= 7 || attempts <= rnr_retry ? RnrVerdict::kRetry : RnrVerdict::kGiveUp;
}

class QueuePair {
 public:
  explicit QueuePair(const QueuePairConfig& config);

  uint32_t number() const { return config_.number; }
  const SendLimits& limits() const { return config_.limits; }
  CompletionQueue& send_cq() { return *config_.send_cq; }
  CompletionQueue& recv_cq() { return *config_.recv_cq; }
  ReceiveQueue& receives() { return *receives_; }
  SendQueue& sends() { return sends_; }
  const SendQueue& sends() const { return sends_; }

  ibv_qp_state state() const { return state_; }
  bool in_error() const { return state_ == IBV_QPS_ERR; }
  bool move_to(ibv_qp_state state);  // not to ERR: that is fail(); false: not a legal move

  // 0 or the errno for ibv_post_send: EINVAL (state, request), ENOMEM (queue full). On success
  // the request has its record; in ERR it is flushed already.
  int admit(const ibv_send_wr& request, uint32_t* length);
  int post_receive(const ibv_recv_wr& request);  // not with an SRQ

  // Reports what is done, in order, while the send CQ's poll has room (`all`: and beyond).
  // False: a failure was reported just now; the QP is in ERR and flushed.
  bool report_sends(bool all);

  // The receive of the message that arrives: the front entry; null: none. A message of several
  // packets takes its entry of an SRQ with the first of them (begin_receive): other queue pairs
  // go on with the next. It is flushed if the queue pair fails before it is complete.
  const Receive* receive() const;
  void begin_receive();  // requires a receive

  // A successful receive. Requires one.
  void complete_receive(const Arrival& arrival);
  // The receive cannot take its message: error completion, then ERR. `status` e.g.
  // IBV_WC_LOC_LEN_ERR. Requires a receive.
  void fail_receive(ibv_wc_status status, uint32_t vendor_error);

  // To ERR, if not there yet, and flushes. vendor_error goes into the flushed completions.
  void fail(uint32_t vendor_error);
  // To ERR without completions: the QP is destroyed, nobody will ask.
  void abandon() { state_ = IBV_QPS_ERR; }

 private:
  void push_error(CompletionQueue& queue, uint64_t wr_id, ibv_wc_status status,
                  uint32_t vendor_error);
  void flush_sends();
  void flush_receives();
  uint64_t take_receive();  // its wr_id

  const QueuePairConfig config_;
  ibv_qp_state state_ = IBV_QPS_RESET;
  uint32_t vendor_error_ = 0;
  SendQueue sends_;
  std::unique_ptr<ReceiveQueue> own_receives_;  // none with an SRQ
  ReceiveQueue* const receives_;
  // Of an SRQ, taken for a message that is not complete.
  bool begun_ = false;
  Receive taken_;
  std::vector<ibv_sge> taken_sges_;
};

}  // namespace be::rc
