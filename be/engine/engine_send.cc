#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "be/engine/engine_impl.h"

namespace be {

Status Engine::Impl::send(SocketId socket, FrameKind kind, MessageClass klass, Message& message,
                          uint64_t cookie) {
  if (state_ >= State::kFailing) return closed_status();
  const size_t bytes = message.bytes();
  if (bytes > remote_.max_message_bytes) {
    return error(Code::kInvalidArgument, "a message of {} bytes, {} takes {}", bytes,
                 resources_.peer, remote_.max_message_bytes);
  }
  const uint32_t slot = sockets_.find_or_add(socket);
  SocketQueue& queue = sockets_.at(slot);
  if (queue.length >= kMaxQueued) {
    return error(Code::kResourceExhausted, "socket {} to {}: {} messages are queued", socket,
                 resources_.peer, queue.length);
  }
  OutgoingMessage* out = messages_.take();
  out->total = FrameHeader::kBytes + static_cast<uint32_t>(bytes);
  // Before the peer's terms are known, any message may become a large one.
  if (out->total > inline_bytes_ || state_ == State::kInit) {
    if (Status status = find_keys(*out, message); !status.ok()) {
      messages_.give(out);
      if (queue.messages.empty()) sockets_.erase(slot);
      return status;
    }
  }
  out->cookie = cookie;
  out->socket = socket;
  out->kind = kind;
  out->klass = klass;
  out->large = is_large(out->total);
  for (uint8_t i = 0; i < message.count; ++i) out->message.parts[i] = std::move(message.parts[i]);
  out->message.count = std::exchange(message.count, uint8_t{0});
  out->message.header_bytes = std::exchange(message.header_bytes, uint8_t{0});
  std::memcpy(out->message.header, message.header, out->message.header_bytes);

  queue.messages.push_back(out);
  ++queue.length;
  ++queued_;
  if (out->large && queue.unrequested == nullptr) queue.unrequested = out;
  // A queue that was waiting goes on waiting, but for a new WriteRequest.
  if (queue.length == 1 || queue.unrequested == out) scheduler_.add(slot);
  dirty_ = true;
  return {};
}

Status Engine::Impl::find_keys(OutgoingMessage& out, const Message& message) const {
  for (uint8_t i = 0; i < message.count; ++i) {
    const RegionKeys* keys =
        resources_.pool->region(message.parts[i].data(), resources_.device_index);
    if (keys == nullptr) {
      return error(Code::kInvalidArgument, "part {} of the message is not registered with {}", i,
                   resources_.device->name());
    }
    out.lkeys[i] = keys->lkey;
  }
  return {};
}

void Engine::Impl::close_socket(SocketId socket, const Status& status) {
  if (fork_guard_.in_child()) return;
  refuse_and_cancel(socket);
  const uint32_t slot = sockets_.find(socket);
  if (slot == SocketTable::kNone) return;
  OutgoingMessage* next = sockets_.at(slot).messages.front();
  while (next != nullptr) {
    OutgoingMessage* message = std::exchange(next, next->next);
    if (!message->begun()) abandon(slot, message, status);
  }
  deliver();
}

// Ends a message that is still in its socket's queue. If fragments of it are on their way it ends
// once they have: with the GrantDone that follows them.
void Engine::Impl::abandon(uint32_t slot, OutgoingMessage* message, const Status& status) {
  SocketQueue& queue = sockets_.at(slot);
  if (queue.unrequested == message) find_unrequested(queue, message->next);
  queue.messages.remove(message);
  --queue.length;
  --queued_;
  if (queue.messages.empty()) {
    scheduler_.remove(slot);
    sockets_.erase(slot);
  } else {
    scheduler_.add(slot);  // another message is first now
  }
  dirty_ = true;

  if (message->stage == OutgoingMessage::Stage::kRequested) requested_[message->tag] = nullptr;
  if (message->stage == OutgoingMessage::Stage::kGranted) {
    forget_granted(message);
    grants_done_.push_back({message->grant, message->begun() ? message : nullptr});
  }
  if (message->begun()) {
    message->result = status;
  } else {
    finish(message, status);
  }
}

void Engine::Impl::find_unrequested(SocketQueue& queue, OutgoingMessage* from) {
  while (from != nullptr && !(from->large && from->stage == OutgoingMessage::Stage::kQueued)) {
    from = from->next;
  }
  queue.unrequested = from;
}

void Engine::Impl::schedule() {
  wake_parked();
  while (chain_.free() > kControlReserve) {
    if (!scheduler_.runnable()) {
      wake_parked();
      if (!scheduler_.runnable()) return;
    }
    if (!take_turn(scheduler_.take())) return;
  }
}

// Whoever waits for what there is again goes on: as many as can use it.
void Engine::Impl::wake_parked() {
  if (!scheduler_.any_parked()) return;
  using Wait = Scheduler::Wait;
  const uint32_t credits = credits_.available();
  scheduler_.wake(Wait::kReplyCredit, credits);
  if (credits_.may_spend(MessageClass::kRequest)) scheduler_.wake(Wait::kRequestCredit, credits);
  for (const MessageClass klass : {MessageClass::kReply, MessageClass::kRequest}) {
    if (write_requests_.may_open(klass)) {
      scheduler_.wake(write_request_wait(klass), write_requests_.size());
    }
  }
  if (fragments_in_flight_ < fragment_limit_) {
    scheduler_.wake(Wait::kFragment, fragment_limit_ - fragments_in_flight_);
  }
}

// One socket's turn: a WriteRequest, a message in one SEND, or one fragment. Behind a large
// message whose last fragment is not posted nothing of the socket is, but WriteRequests.
bool Engine::Impl::take_turn(uint32_t slot) {
  SocketQueue& queue = sockets_.at(slot);
  if (queue.unrequested != nullptr && write_requests_.may_open(queue.unrequested->klass)) {
    OutgoingMessage* message = queue.unrequested;
    find_unrequested(queue, message->next);
    message->stage = OutgoingMessage::Stage::kRequested;
    message->tag = write_requests_.open();
    requested_[message->tag] = message;
    FrameHeader header = control_header(FrameType::kWriteRequest, message->tag);
    header.klass = message->klass;
    header.socket = message->socket;
    header.length = message->payload_bytes();
    prepare_control(header);
    scheduler_.add(slot);
    return true;
  }

  OutgoingMessage* message = queue.messages.front();
  bool posted = true;  // all of it
  if (!message->large) {
    if (!credits_.may_spend(message->klass)) {
      ++stats_.credit_stalls;
      scheduler_.park(slot, credit_wait(message->klass));
      return true;
    }
    if (!window_open(slot, message->total)) return false;
    credits_.spend();
    prepare_send(message);
  } else if (message->stage == OutgoingMessage::Stage::kGranted) {
    if (fragments_in_flight_ >= fragment_limit_) {
      scheduler_.park(slot, Scheduler::Wait::kFragment);
      return true;
    }
    if (!window_open(slot, fragment_length(*message))) return false;
    prepare_fragment(message);
    posted = message->offset == message->total;
    if (posted) forget_granted(message);
  } else {
    // Waits for its grant, and the next one perhaps for its WriteRequest.
    if (queue.unrequested != nullptr) {
      scheduler_.park(slot, write_request_wait(queue.unrequested->klass));
    }
    return true;
  }

  if (posted) {
    queue.messages.pop_front();
    --queue.length;
    --queued_;
  }
  if (queue.messages.empty()) {
    sockets_.erase(slot);
  } else {
    scheduler_.add(slot);
  }
  return true;
}

// Closed: the socket keeps its turn, so that small messages cannot overtake a fragment for ever.
bool Engine::Impl::window_open(uint32_t slot, uint32_t bytes) {
  if (window_.fits(bytes)) return true;
  ++stats_.window_stalls;
  scheduler_.add_front(slot);
  return false;
}

}  // namespace be
