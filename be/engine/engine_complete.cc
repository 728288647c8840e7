#include <utility>

#include "be/engine/engine_impl.h"
#include "be/verbs/errors.h"

namespace be {

void Engine::Impl::on_completion(const ibv_wc& completion) {
  if (SharedReceives::owns(completion.wr_id)) {
    dirty_ = true;
    on_shared_receive(completion);
    check_invariants();
    return;
  }
  if (state_ == State::kRetired || state_ == State::kDead) return;  // polled before, told after
  dirty_ = true;
  if ((static_cast<uint32_t>(completion.wr_id) & kReceiveBit) != 0) {
    on_receive(completion);
  } else {
    on_send_completion(completion);
  }
  check_invariants();
}

void Engine::Impl::on_send_completion(const ibv_wc& completion) {
  WorkRequestChain::Range ended;
  if (!chain_.complete(static_cast<uint32_t>(completion.wr_id), ended)) {
    fail(error(Code::kDeviceError, "{}: work request {} completed but is not in flight",
               resources_.peer, static_cast<uint32_t>(completion.wr_id)));
    return;
  }
  if (completion.status == IBV_WC_SUCCESS) {
    end_range(ended);
    deliver();
    return;
  }
  // All before the failed one succeeded. It is ended by fail, with everything behind it.
  OutgoingMessage* failed = nullptr;
  if (state_ != State::kFailing) {
    SendSlot& last = send_slots_[chain_.slot_of(ended.first + ended.count - 1)];
    failed = std::exchange(last.message, nullptr);
  }
  end_range(ended);
  if (failed != nullptr) {
    // In front of what fail() ends: it is older.
    finish_in_flight(failed, completion_error(completion, resources_.peer));
  }
  fail(completion_error(completion, resources_.peer));
}

void Engine::Impl::end_range(const WorkRequestChain::Range& range) {
  for (uint32_t i = 0; i < range.count; ++i) {
    SendSlot& slot = send_slots_[chain_.slot_of(range.first + i)];
    if (slot.window_bytes != 0) window_.complete(slot.window_bytes);
    if (slot.kind == SendSlot::Kind::kFragment) --fragments_in_flight_;
    if (slot.kind == SendSlot::Kind::kKeepalive) keepalive_->written();
    if (OutgoingMessage* message = std::exchange(slot.message, nullptr); message != nullptr) {
      if (message->result.ok()) {
        ++stats_.messages_sent;
        stats_.bytes_sent += message->payload_bytes();
      }
      done_.push_back(message);
    }
  }
}

// The message's memory is free: nothing of it is posted.
void Engine::Impl::finish(OutgoingMessage* message, const Status& status) {
  message->result = status;
  done_.push_back(message);
}

// Tells the user of all that is done. Re-entered when a callback fails the engine: then the inner
// call tells of the rest, before on_engine_failed.
void Engine::Impl::deliver() {
  while (!done_.empty()) {
    OutgoingMessage* message = done_.pop_front();
    const SocketId socket = message->socket;
    const uint64_t cookie = message->cookie;
    const Status result = std::move(message->result);
    messages_.give(message);
    user_->on_sent(socket, cookie, result);
  }
}

}  // namespace be
