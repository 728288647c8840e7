#include <arpa/inet.h>

#include <cassert>
#include <cstring>
#include <utility>

#include "be/engine/engine_impl.h"
#include "be/verbs/errors.h"

namespace be {

// What a failing queue pair still takes goes back to the others at once.
void Engine::Impl::on_shared_receive(const ibv_wc& completion) {
  Buffer buffer = shared_->take(completion.wr_id);
  if (state_ >= State::kFailing) return keep(std::move(buffer));
  if (!ring_.consume_shared()) {
    keep(std::move(buffer));
    return fail_protocol("frame", "credit: no receive is left for it");
  }
  on_received(completion, std::move(buffer));
}

void Engine::Impl::on_receive(const ibv_wc& completion) {
  const uint32_t index = static_cast<uint32_t>(completion.wr_id) & ReceiveRing::kIndexMask;
  if (!ring_.consume(index)) {
    fail(
        error(Code::kDeviceError, "{}: receive {} completed out of order", resources_.peer, index));
    return;
  }
  Buffer buffer = std::move(receive_buffers_[ring_.slot_of(index)]);
  if (state_ == State::kFailing) {
    spares_.push_back(std::move(buffer));  // the peer may be writing elsewhere, not in here
    return;
  }
  on_received(completion, std::move(buffer));
}

void Engine::Impl::keep(Buffer buffer) {
  if (shared_ != nullptr) {
    shared_->give_back(std::move(buffer));
  } else {
    spares_.push_back(std::move(buffer));
  }
}

void Engine::Impl::keep_data(Buffer buffer) {
  if (shared_ != nullptr) {
    shared_->give_back_data(share_, std::move(buffer));
  } else {
    spares_.push_back(std::move(buffer));
  }
}

void Engine::Impl::on_received(const ibv_wc& completion, Buffer buffer) {
  if (completion.status != IBV_WC_SUCCESS) {
    keep(std::move(buffer));
    fail(completion_error(completion, resources_.peer));
    return;
  }
  if (completion.opcode == IBV_WC_RECV) {
    on_send_frame(std::move(buffer), completion.byte_len);
    return;
  }
  keep(std::move(buffer));
  ring_.consumed_by_control();
  if (completion.opcode != IBV_WC_RECV_RDMA_WITH_IMM) {
    fail_protocol("completion", "opcode");
    return;
  }
  on_written(ntohl(completion.imm_data));
}

void Engine::Impl::on_send_frame(Buffer buffer, uint32_t length) {
  FrameHeader header;
  const char* broken = decode(buffer.data(), length, header);
  if (broken == nullptr && !take_cancels_seen(header.cancels_taken)) broken = "cancels taken";
  if (broken == nullptr && spends_credit(header.type) && !ring_.consumed_by_data()) {
    broken = "credit: it has none";
  }
  if (broken != nullptr) {
    keep(std::move(buffer));
    fail_protocol("frame", broken);
    return;
  }
  if (is_data(header.type)) {
    on_data(header, std::move(buffer));
  } else if (header.type == FrameType::kCreditsBack) {
    keep_data(std::move(buffer));
    on_credits_back(header.value);
  } else {
    ring_.consumed_by_control();
    on_control(header, std::move(buffer));
  }
}

void Engine::Impl::on_data(const FrameHeader& header, Buffer buffer) {
  ++stats_.messages_received;
  stats_.bytes_received += header.length;
  Buffer payload;
  bool copied = header.length == 0;
  if (!copied && header.length <= kCopyBreakBytes) {
    Result<Buffer> right_sized = resources_.pool->allocate_buffer(header.length);
    if (right_sized.ok()) {
      std::memcpy(right_sized->data(), buffer.data() + FrameHeader::kBytes, header.length);
      payload = *std::move(right_sized);
      copied = true;
    }
  }
  if (copied) {
    keep_data(std::move(buffer));
  } else {  // the buffer itself; also a small message, if there is no memory for its copy
    buffer.resize(FrameHeader::kBytes + header.length);
    buffer.drop_front(FrameHeader::kBytes);
    payload = std::move(buffer);
    if (shared_ != nullptr) shared_->handed_up(share_);
  }
  user_->on_frame(static_cast<FrameKind>(header.type), header.socket, std::move(payload));
}

void Engine::Impl::on_control(const FrameHeader& header, Buffer buffer) {
  GrantedMemory memory;
  if (header.type == FrameType::kWriteResponse) {
    memory = decode_granted_memory(buffer.data() + FrameHeader::kBytes);
  }
  keep(std::move(buffer));
  switch (header.type) {
    case FrameType::kCredits:
      if (!credits_.accept(header.value)) fail_protocol("Credits", "total");
      break;
    case FrameType::kWriteRequest:
      on_write_request(header);
      break;
    case FrameType::kWriteResponse:
      on_write_response(header, memory);
      break;
    case FrameType::kGrantCancel:
      on_grant_cancel(header.value);
      break;
    case FrameType::kGrantDone:
      on_grant_done(header.value);
      break;
    case FrameType::kMessage:
    case FrameType::kSocketClose:
    case FrameType::kCreditsBack:
      assert(false);  // they spend a credit
  }
}

// The peer has been idle: what it was dealt is for others.
void Engine::Impl::on_credits_back(uint32_t credits) {
  if (shared_ == nullptr || !ring_.give_back(credits)) {
    fail_protocol("CreditsBack", "count");
    return;
  }
  shared_->credits_given_back(share_, credits);
}

// How many of our GrantCancels the peer has taken, and so has posted their receives again.
bool Engine::Impl::take_cancels_seen(uint8_t taken) {
  const auto news = static_cast<uint8_t>(taken - cancels_seen_);
  const auto unanswered = static_cast<uint8_t>(cancels_sent_ - cancels_seen_);
  if (news > unanswered) return false;
  cancels_seen_ = taken;
  return true;
}

// Posts what control frames and immediates have used, and replaces what data has used, by one
// call. At the cap a data receive is not replaced and its credit is withheld.
bool Engine::Impl::repost_receives() {
  if (shared_ != nullptr) return take_credits();
  while (ring_.to_repost() > 0) {
    link_receive(std::move(spares_.back()));
    spares_.pop_back();
    ring_.post_again();
  }
  if (ring_.replacement_due()) {
    while (ring_.deficit() > 0 && spare_for_data()) {
      link_receive(std::move(spares_.back()));
      spares_.pop_back();
      ring_.post_replaced();
    }
  }
  if (receives_linked_ == 0) return false;
  if (Status status = post_receives(); !status.ok()) fail(status);
  return true;
}

// On an SRQ all has been posted after the poll. What data has used is dealt again, by demand and as
// far as the others leave something.
bool Engine::Impl::take_credits() {
  while (ring_.to_repost() > 0) ring_.post_again();
  if (!ring_.replacement_due() || stalled_[kReceiveStall]) return false;
  const uint32_t dealt = shared_->deal(share_, ring_.deficit());
  for (uint32_t i = 0; i < dealt; ++i) ring_.post_replaced();
  if (dealt == 0 && shared_->owes(share_)) {  // then on_receives_replaced follows
    stalled_[kReceiveStall] = true;
    ++stats_.memory_stalls;
  }
  return dealt > 0;
}

void Engine::Impl::on_receives_replaced() {
  stalled_[kReceiveStall] = false;
  dirty_ = true;
  if (signal_->wake) signal_->wake();
}

// A spare buffer for a data receive: one that was not handed up, or a fresh one.
bool Engine::Impl::spare_for_data() {
  if (!spares_.empty()) return true;
  if (stalled_[kReceiveStall]) return false;
  Result<Buffer> fresh = resources_.pool->allocate_buffer(options_.eager_bytes);
  if (!fresh.ok()) {
    stall_on_memory(kReceiveStall);
    return false;
  }
  spares_.push_back(*std::move(fresh));
  return true;
}

// The ring counts the receive right after.
void Engine::Impl::link_receive(Buffer buffer) {
  ibv_recv_wr& wr = receive_wrs_[receives_linked_];
  ibv_sge& sge = receive_sges_[receives_linked_];
  if (receives_linked_ > 0) receive_wrs_[receives_linked_ - 1].next = &wr;
  ++receives_linked_;
  const RegionKeys* keys = resources_.pool->region(buffer.data(), resources_.device_index);
  sge = {reinterpret_cast<uintptr_t>(buffer.data()), options_.eager_bytes, keys->lkey};
  wr = {wr_id(ring_.next_index(), kReceiveBit), nullptr, &sge, 1};
  receive_buffers_[ring_.slot_of(ring_.next_index())] = std::move(buffer);
}

Status Engine::Impl::post_receives() {
  ibv_recv_wr* bad = nullptr;
  const int error_number = ibv_post_recv(qp_, receive_wrs_.data(), &bad);
  receives_linked_ = 0;
  if (error_number != 0) return verb_error("ibv_post_recv", error_number, resources_.peer);
  return {};
}

void Engine::Impl::stall_on_memory(int what) {
  stalled_[what] = true;
  ++stats_.memory_stalls;
  memory_retry_ = std::min(memory_retry_, saturating_add(now_, kMemoryRetry));
  if (on_free_id_ != 0) return;
  on_free_id_ = resources_.pool->on_free([signal = signal_] {
    signal->freed.store(true, std::memory_order_release);
    if (signal->wake) signal->wake();
  });
}

void Engine::Impl::retry_memory(Time now) {
  now_ = now;
  if (on_free_id_ != 0) resources_.pool->cancel_on_free(std::exchange(on_free_id_, 0));
  memory_retry_ = kNever;
  for (bool& stalled : stalled_) stalled = false;
  dirty_ = true;
}

}  // namespace be
