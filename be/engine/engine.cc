#include "be/engine/engine.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "be/engine/engine_impl.h"

namespace be {

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Engine::~Engine() {
  assert(state() == State::kInit || state() == State::kDead);
  // Its I/O thread may have been in the middle of anything.
  if (impl_->fork_guard_.in_child()) static_cast<void>(impl_.release());
}

const EngineTerms& Engine::local_terms() const { return impl_->local_; }

Result<EndpointBlob> Engine::local_endpoint() const {
  if (impl_->fork_guard_.in_child()) return impl_->closed_status();
  return impl_->resources_.device->local_endpoint(impl_->qp_);
}

Status Engine::connect(const EngineTerms& remote, const EndpointBlob& endpoint,
                       const uint8_t secret_token[16], bool initiator) {
  return impl_->connect(remote, endpoint, secret_token, initiator);
}

void Engine::on_connected(const Status& status, Time now) { impl_->on_connected(status, now); }

Status Engine::send(SocketId socket, FrameKind kind, MessageClass klass, Message& message,
                    uint64_t cookie) {
  return impl_->send(socket, kind, klass, message, cookie);
}

void Engine::close_socket(SocketId socket, const Status& status) {
  impl_->close_socket(socket, status);
}

void Engine::on_completion(const ibv_wc& completion) { impl_->on_completion(completion); }

void Engine::on_last_receive() { impl_->on_last_receive(); }

bool Engine::progress(Time now) { return impl_->progress(now); }

bool Engine::wants_progress() const {
  return impl_->dirty_ ||
         (impl_->state_ < State::kFailing && impl_->signal_->freed.load(std::memory_order_relaxed));
}

void Engine::tick(Time now) { impl_->tick(now); }

Time Engine::next_tick() const { return impl_->next_tick(); }

void Engine::fail(const Status& why) { impl_->fail(why); }

void Engine::on_quiesced(QuiesceToken token) { impl_->on_quiesced(token); }

Engine::State Engine::state() const { return impl_->state_; }

ibv_qp* Engine::qp() const { return impl_->qp_; }

const char* Engine::broken_invariant() const { return impl_->broken_invariant(); }

uint32_t Engine::completions_needed() const { return completions_needed(impl_->options_); }

uint32_t Engine::completions_needed(const EngineOptions& options) {
  if (options.shared_receives != 0) return options.send_queue_depth;
  return options.send_queue_depth + options.recv_queue_depth + reserved_receives(options);
}

EngineStats Engine::stats() const {
  EngineStats stats = impl_->stats_;
  stats.open_grants = impl_->grants_.open_count();
  stats.queued_messages = impl_->queued_;
  return stats;
}

bool Engine::Impl::progress(Time now) {
  now_ = now;
  if (no_more_receives_ && state_ < State::kFailing) {  // and no send was there to be flushed
    fail(error(Code::kUnavailable, "{}: our queue pair is in error", resources_.peer));
  }
  if (state_ == State::kFailing) {
    dirty_ = false;
    advance_failure(now);
    return false;
  }
  if (state_ != State::kReady && state_ != State::kConnecting) return false;
  dirty_ = false;
  if (signal_->freed.exchange(false, std::memory_order_acquire)) retry_memory(now);
  // Receives first: what is sent below may tell the peer that it can use them.
  bool did = repost_receives();
  if (state_ == State::kReady) {
    queue_controls();
    answer_write_requests();
    schedule();
    did |= post();
  }
  check_invariants();
  return did;
}

void Engine::Impl::tick(Time now) {
  now_ = now;
  if (state_ == State::kFailing) {
    advance_failure(now);
    return;
  }
  if (now >= memory_retry_) retry_memory(now);
  if (state_ != State::kReady || now < keepalive_->next_tick()) return;

  const uint64_t heard =
      std::atomic_ref<uint64_t>(*keepalive_word_).load(std::memory_order_relaxed);
  const Keepalive::Verdict verdict = keepalive_->tick(now, heard);
  if (verdict.dead) {
    fail(error(
        Code::kUnavailable, "{}: no sign of life for {} ms", resources_.peer,
        std::chrono::duration_cast<std::chrono::milliseconds>(keepalive_->timeout()).count()));
    return;
  }
  if (verdict.write != 0) {
    keepalive_write_ = verdict.write;
    dirty_ = true;
  }
  if (remote_.shared_receives) {
    credits_idle_ = credits_.spent() == credits_at_tick_;
    credits_at_tick_ = credits_.spent();
  }
}

Time Engine::Impl::next_tick() const {
  switch (state_) {
    case State::kReady:
      return std::min(keepalive_->latest_tick(), memory_retry_);
    case State::kConnecting:
      return memory_retry_;
    case State::kFailing:
      return drain_until_ == kNever ? now_ : drain_until_;  // kNever: not begun, so at once
    case State::kInit:
    case State::kRetired:
    case State::kDead:
      return kNever;
  }
  return kNever;
}

}  // namespace be
