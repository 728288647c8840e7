#include <algorithm>
#include <cassert>
#include <utility>

#include "be/engine/engine_impl.h"

namespace be {

// --- The receiver of a large message

void Engine::Impl::on_write_request(const FrameHeader& header) {
  if (header.length > options_.max_message_bytes) {
    fail_protocol("WriteRequest", "length");
    return;
  }
  if (waiting_[0].size() + waiting_[1].size() >= options_.write_requests) {
    fail_protocol("WriteRequest", "count: too many are unanswered");
    return;
  }
  waiting_[static_cast<int>(header.klass)].push_back({header.value, header.socket, header.length});
}

// Replies first; within a class in order of arrival, so grants of a socket are in queue order.
void Engine::Impl::answer_write_requests() {
  for (const MessageClass klass : {MessageClass::kReply, MessageClass::kRequest}) {
    while (!waiting_[static_cast<int>(klass)].empty() && answer_one(klass)) {
      waiting_[static_cast<int>(klass)].pop_front();
    }
  }
}

bool Engine::Impl::answer_one(MessageClass klass) {
  WaitingRequest& request = waiting_[static_cast<int>(klass)].front();
  if (chain_.free() <= kControlReserve) return false;

  GrantedMemory memory;
  if (request.refusal == Code::kOk) {
    if (stalled_[static_cast<int>(klass)]) return false;
    const uint32_t bytes = FrameHeader::kBytes + request.length;
    if (!grants_.may_open(klass, bytes)) return false;
    Result<Buffer> buffer = resources_.pool->allocate_buffer(bytes);
    if (buffer.ok()) {
      const RegionKeys* keys = resources_.pool->region(buffer->data(), resources_.device_index);
      memory.grant = grants_.open(klass, bytes);
      memory.rkey = keys->rkey;
      memory.address = reinterpret_cast<uintptr_t>(buffer->data());
      OpenGrant& open = open_grants_[GrantTable::slot_of(memory.grant)];
      open.buffer = *std::move(buffer);
      open.socket = request.socket;
      open.cancelled = false;
    } else {
      if (buffer.status().code() == Code::kResourceExhausted && !out_of_patience(request)) {
        stall_on_memory(static_cast<int>(klass));
        return false;
      }
      request.refusal = Code::kResourceExhausted;  // now, or for ever: larger than all memory
    }
  }
  FrameHeader header = control_header(FrameType::kWriteResponse, request.tag);
  header.refusal = request.refusal;
  prepare_control(header, nullptr, &memory);
  return true;
}

// Two engines whose memory is full of large messages for each other would wait for ever. So
// waiting for memory is bounded, by the time after which a silent peer is given up.
bool Engine::Impl::out_of_patience(WaitingRequest& request) {
  if (request.stalled == kNever) request.stalled = now_;
  return now_ - request.stalled >= options_.keepalive_timeout;
}

// The last fragment of a message has arrived: all its bytes are in the grant's buffer.
void Engine::Impl::on_written(GrantId grant) {
  const std::optional<uint32_t> slot = grants_.close(grant);
  if (!slot.has_value()) {
    fail_protocol("immediate", "grant");
    return;
  }
  OpenGrant& open = open_grants_[*slot];
  Buffer buffer = std::move(open.buffer);
  FrameHeader header;
  const char* broken = decode(buffer.data(), buffer.size(), header);
  if (broken == nullptr && !is_data(header.type)) broken = "frame type";
  if (broken == nullptr && header.socket != open.socket) broken = "socket";
  if (broken != nullptr) {
    fail_protocol("written message", broken);
    return;
  }
  buffer.drop_front(FrameHeader::kBytes);
  ++stats_.messages_received;
  stats_.bytes_received += header.length;
  user_->on_frame(static_cast<FrameKind>(header.type), header.socket, std::move(buffer));
}

void Engine::Impl::on_grant_done(GrantId grant) {
  const std::optional<uint32_t> slot = grants_.close(grant);
  if (!slot.has_value()) {
    fail_protocol("GrantDone", "grant");
    return;
  }
  open_grants_[*slot].buffer.reset();
}

// Our side has closed the socket: nobody waits for what the peer still wants to write on it.
void Engine::Impl::refuse_and_cancel(SocketId socket) {
  for (auto& waiting : waiting_) {
    for (size_t i = 0; i < waiting.size(); ++i) {
      if (waiting[i].socket == socket) waiting[i].refusal = Code::kClosed;
    }
  }
  for (uint32_t slot = 0; slot < grants_.size(); ++slot) {
    OpenGrant& open = open_grants_[slot];
    if (!grants_.slot_is_open(slot) || open.socket != socket || open.cancelled) continue;
    open.cancelled = true;
    cancels_.push_back(grants_.grant_of(slot));
  }
  dirty_ = true;
}

// Control frames, in their order; those that have no slot now go with the next completion.
void Engine::Impl::queue_controls() {
  if (ring_.return_due() && chain_.free() > 0) {
    prepare_control(control_header(FrameType::kCredits, ring_.take_return()));
  }
  while (!grants_done_.empty() && chain_.free() > 0) {
    const GrantDone done = grants_done_.pop_front();
    prepare_control(control_header(FrameType::kGrantDone, done.grant), done.message);
  }
  while (!cancels_.empty() && chain_.free() > 0 &&
         static_cast<uint8_t>(cancels_sent_ - cancels_seen_) < cancel_limit_) {
    const GrantId grant = cancels_.pop_front();
    if (!grants_.is_open(grant)) continue;  // written meanwhile
    ++cancels_sent_;
    prepare_control(control_header(FrameType::kGrantCancel, grant));
  }
  if (keepalive_write_ != 0 && chain_.free() > 0) prepare_keepalive();
  if (credits_idle_ && chain_.free() > kControlReserve) give_back_credits();
}

void Engine::Impl::give_back_credits() {
  credits_idle_ = false;
  const uint32_t surplus = credits_.surplus();
  if (surplus == 0) return;
  credits_.spend(1 + surplus);
  prepare_control(control_header(FrameType::kCreditsBack, surplus));
}

// --- The sender of a large message

void Engine::Impl::on_write_response(const FrameHeader& header, const GrantedMemory& memory) {
  const uint32_t tag = header.value;
  if (!write_requests_.is_open(tag)) {
    fail_protocol("WriteResponse", "tag");
    return;
  }
  write_requests_.close(tag);
  OutgoingMessage* message = std::exchange(requested_[tag], nullptr);
  const bool refused = header.refusal != Code::kOk;
  if (message == nullptr) {  // abandoned
    if (!refused) grants_done_.push_back({memory.grant, nullptr});
    return;
  }
  const uint32_t slot = sockets_.find(message->socket);
  if (refused) {
    abandon(slot, message,
            error(header.refusal, "{} refused a message of {} bytes{}", resources_.peer,
                  message->payload_bytes(),
                  header.refusal == Code::kResourceExhausted ? ": its memory.cap_bytes is reached"
                                                             : ""));
    deliver();
    return;
  }
  message->stage = OutgoingMessage::Stage::kGranted;
  message->grant = memory.grant;
  message->rkey = memory.rkey;
  message->address = memory.address;
  granted_.push_back(message);
  scheduler_.add(slot);
}

void Engine::Impl::on_grant_cancel(GrantId grant) {
  ++cancels_taken_;
  const auto found = std::find_if(granted_.begin(), granted_.end(),
                                  [grant](const auto* m) { return m->grant == grant; });
  if (found == granted_.end()) return;  // its last fragment is posted, or it was abandoned
  OutgoingMessage* message = *found;
  abandon(sockets_.find(message->socket), message,
          error(Code::kClosed, "{} closed socket {}", resources_.peer, message->socket));
  deliver();
}

void Engine::Impl::forget_granted(OutgoingMessage* message) {
  const auto found = std::find(granted_.begin(), granted_.end(), message);
  assert(found != granted_.end());
  *found = granted_.back();
  granted_.pop_back();
}

}  // namespace be
