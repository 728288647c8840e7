#include "be/verbs/rc/queue_pair.h"

#include <cerrno>

namespace be::rc {

QueuePair::QueuePair(const QueuePairConfig& config)
    : config_(config),
      sends_(config.send_depth),
      own_receives_(config.srq ? nullptr
                               : new ReceiveQueue(config.recv_depth, config.max_recv_sge)),
      receives_(config.srq ? config.srq : own_receives_.get()) {}

bool QueuePair::move_to(ibv_qp_state state) {
  if (state == IBV_QPS_ERR || !may_move(state_, state)) return false;
  state_ = state;
  return true;
}

int QueuePair::admit(const ibv_send_wr& request, uint32_t* length) {
  if (!takes_sends(state_)) return EINVAL;
  if (int error = check_send(request, config_.limits, length)) return error;
  if (sends_.full()) return ENOMEM;
  sends_.post({.wr_id = request.wr_id,
               .byte_len = *length,
               .opcode = completion_opcode(request.opcode),
               .signalled = (request.send_flags & IBV_SEND_SIGNALED) != 0});
  if (in_error()) flush_sends();
  return 0;
}

int QueuePair::post_receive(const ibv_recv_wr& request) {
  if (!own_receives_ || !takes_receives(state_)) return EINVAL;
  if (int error = receives_->post(request)) return error;
  if (in_error()) flush_receives();
  return 0;
}

bool QueuePair::report_sends(bool all) {
  while (all || config_.send_cq->has_room()) {
    const SendQueue::Next next = sends_.next();
    if (next == SendQueue::Next::kNothing) return true;
    if (next == SendQueue::Next::kFailed) {
      const ibv_wc_status status = sends_.failure();
      push_error(*config_.send_cq, sends_.report(true).wr_id, status, 0);
      fail(0);
      return false;
    }
    const bool visible = sends_.oldest().signalled;
    const SendRecord& record = sends_.report(visible);
    if (!visible) continue;
    ibv_wc completion{};
    completion.wr_id = record.wr_id;
    completion.status = IBV_WC_SUCCESS;
    completion.opcode = record.opcode;
    completion.byte_len = record.byte_len;
    completion.qp_num = config_.number;
    config_.send_cq->push(completion);
  }
  return true;
}

const Receive* QueuePair::receive() const {
  if (begun_) return &taken_;
  return receives_->empty() ? nullptr : &receives_->front();
}

void QueuePair::begin_receive() {
  if (own_receives_ != nullptr || begun_) return;
  taken_ = receives_->front();
  taken_sges_.assign(taken_.sges, taken_.sges + taken_.num_sge);
  taken_.sges = taken_sges_.data();
  receives_->take();
  begun_ = true;
}

uint64_t QueuePair::take_receive() {
  if (begun_) {
    begun_ = false;
    return taken_.wr_id;
  }
  const uint64_t wr_id = receives_->front().wr_id;
  receives_->take();
  return wr_id;
}

void QueuePair::complete_receive(const Arrival& arrival) {
  ibv_wc completion{};
  completion.wr_id = take_receive();
  completion.status = IBV_WC_SUCCESS;
  completion.opcode = arrival.write_with_imm ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
  completion.byte_len = arrival.byte_len;
  completion.qp_num = config_.number;
  completion.src_qp = arrival.source_qp;
  if (arrival.immediate) {
    completion.imm_data = arrival.imm_data;
    completion.wc_flags = IBV_WC_WITH_IMM;
  }
  config_.recv_cq->push(completion);
}

void QueuePair::fail_receive(ibv_wc_status status, uint32_t vendor_error) {
  push_error(*config_.recv_cq, take_receive(), status, vendor_error);
  fail(vendor_error);
}

void QueuePair::fail(uint32_t vendor_error) {
  if (in_error()) return;
  state_ = IBV_QPS_ERR;
  vendor_error_ = vendor_error;
  flush_sends();
  flush_receives();
}

void QueuePair::push_error(CompletionQueue& queue, uint64_t wr_id, ibv_wc_status status,
                           uint32_t vendor_error) {
  ibv_wc completion{};
  completion.wr_id = wr_id;
  completion.status = status;
  completion.vendor_err = vendor_error;
  completion.qp_num = config_.number;
  queue.push(completion);
}

void QueuePair::flush_sends() {
  while (!sends_.all_reported()) {
    push_error(*config_.send_cq, sends_.report(true).wr_id, IBV_WC_WR_FLUSH_ERR, vendor_error_);
  }
}

// An SRQ's receives belong to all its QPs: they stay, but for the one that is taken.
void QueuePair::flush_receives() {
  if (begun_) push_error(*config_.recv_cq, take_receive(), IBV_WC_WR_FLUSH_ERR, vendor_error_);
  if (!own_receives_) return;
  while (!receives_->empty()) {
    const uint64_t wr_id = receives_->front().wr_id;
    receives_->take();
    push_error(*config_.recv_cq, wr_id, IBV_WC_WR_FLUSH_ERR, vendor_error_);
  }
}

}  // namespace be::rc
