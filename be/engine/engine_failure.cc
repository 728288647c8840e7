#include <cassert>
#include <utility>

#include "be/base/log.h"
#include "be/engine/engine_impl.h"

namespace be {

Status Engine::Impl::closed_status() const {
  if (fork_guard_.in_child()) return forked_status("the engine to " + resources_.peer);
  return error(Code::kClosed, "engine to {} has failed: {}", resources_.peer, failure_.to_string());
}

void Engine::Impl::fail(const Status& why) {
  if (state_ >= State::kFailing) return;
  state_ = State::kFailing;
  failure_ = why;
  dirty_ = true;
  if (Status status = resources_.device->fail_qp(qp_); !status.ok()) {
    log_warn("engine to {}: {}", resources_.peer, status.to_string());
  }
  fail_messages();
  deliver();
  user_->on_engine_failed(failure_);
}

void Engine::Impl::fail_protocol(const char* what, const char* field) {
  fail(error(Code::kProtocol, "{} broke the protocol: {}: {}", resources_.peer, what, field));
}

// Every message ends here, exactly once, the older ones of a socket first. The memory of those
// that have begun is retained: the device may still read it.
void Engine::Impl::fail_messages() {
  const uint32_t unfinished = chain_.in_flight() + chain_.pending();
  const uint32_t oldest = chain_.oldest();
  for (uint32_t i = 0; i < unfinished; ++i) {
    SendSlot& slot = send_slots_[chain_.slot_of(oldest + i)];
    if (slot.message != nullptr) finish_in_flight(std::exchange(slot.message, nullptr), failure_);
  }
  while (!grants_done_.empty()) {
    OutgoingMessage* message = grants_done_.pop_front().message;
    if (message != nullptr) finish_in_flight(message, failure_);
  }
  for (uint32_t slot = 0; slot < sockets_.slots(); ++slot) {
    SocketQueue& queue = sockets_.at(slot);
    if (!queue.used) continue;
    queue.unrequested = nullptr;
    while (!queue.messages.empty()) {
      OutgoingMessage* message = queue.messages.pop_front();
      --queued_;
      if (message->begun()) {
        finish_in_flight(message, failure_);
      } else {
        finish(message, failure_);
      }
    }
    scheduler_.remove(slot);
    sockets_.erase(slot);
  }
  for (OutgoingMessage*& requested : requested_) requested = nullptr;
  granted_.clear();
}

// Tells of the message now and keeps its memory until nobody can touch it.
void Engine::Impl::finish_in_flight(OutgoingMessage* message, const Status& status) {
  OutgoingMessage* shell = messages_.take();
  shell->socket = message->socket;
  shell->cookie = message->cookie;
  shell->total = message->total;
  finish(shell, message->result.ok() ? status : message->result);
  retained_.push_back(message);
}

void Engine::Impl::advance_failure(Time now) {
  if (drain_until_ == kNever) drain_until_ = saturating_add(now, kDrainBound);
  if (!drained() && !overdue_) {
    if (now < drain_until_) return;
    overdue_ = true;
    drain_until_ = saturating_add(now, kDrainBound);
    // Not every device tells of the last receive: then what has come by now is all.
    if (shared_ != nullptr) shared_->draining(share_);
  }
  if (shared_ != nullptr && !no_more_receives_ && now < drain_until_) return;
  retire();
}

void Engine::Impl::on_last_receive() {
  if (share_ != CreditDealer::kNobody) shared_->draining(share_);
}

void Engine::Impl::on_receives_drained() {
  no_more_receives_ = true;
  dirty_ = true;
  if (signal_->wake) signal_->wake();
}

void Engine::Impl::retire() {
  Result<QuiesceToken> token = resources_.device->retire_qp(qp_);
  if (!token.ok()) {  // nobody has promised anything about our memory: keep it, and try again
    log_error("engine to {}: {}", resources_.peer, token.status().to_string());
    drain_until_ = saturating_add(now_, kDrainBound);
    return;
  }
  qp_ = nullptr;
  state_ = State::kRetired;
  if (shared_ != nullptr) shared_->forget(std::exchange(share_, CreditDealer::kNobody));
  dirty_ = false;
  quiesce_token_ = *token;
  if (quiesce_token_ == kQuiescedNow) on_quiesced(kQuiescedNow);
}

void Engine::Impl::on_quiesced(QuiesceToken token) {
  if (state_ != State::kRetired || token != quiesce_token_) return;
  state_ = State::kDead;
  release();
}

// Everything that a peer or the device could touch goes back.
void Engine::Impl::release() {
  while (!retained_.empty()) messages_.give(retained_.pop_front());
  for (OpenGrant& open : open_grants_) open.buffer.reset();
  for (Buffer& buffer : receive_buffers_) buffer.reset();
  spares_.clear();
  RegisteredPool& pool = *resources_.pool;
  if (on_free_id_ != 0) pool.cancel_on_free(std::exchange(on_free_id_, 0));
  if (keepalive_region_ != nullptr) {
    ibv_mr* region = std::exchange(keepalive_region_, nullptr);
    if (Status status = resources_.device->deregister(region); !status.ok()) {
      log_warn("engine to {}: {}", resources_.peer, status.to_string());
    }
  }
  if (keepalive_word_ != nullptr) pool.deallocate(std::exchange(keepalive_word_, nullptr));
  if (header_memory_ != nullptr) pool.deallocate(std::exchange(header_memory_, nullptr));
}

}  // namespace be
