#include "be/transport/engine_socket.h"

#include <algorithm>
#include <cassert>

#include "be/transport/connector.h"
#include "be/transport/engine_link.h"
#include "be/transport/handshake_frames.h"

namespace be {
namespace {

constexpr size_t kMaxHeld = 4096;

}  // namespace

EngineSocket::~EngineSocket() {
  if (deadline_timer_ != 0) link_.thread().timers().cancel(deadline_timer_);
}

TransportKind EngineSocket::transport() const { return static_cast<TransportKind>(link_.kind()); }
std::string_view EngineSocket::device_name() const { return link_.device_name(); }
const Address& EngineSocket::remote() const { return link_.remote(); }
IoThread& EngineSocket::thread() const { return link_.thread(); }
size_t EngineSocket::max_message_bytes() const { return link_.max_message_bytes(); }

void EngineSocket::open(SocketHandler* handler, Time deadline) {
  handler_ = handler;
  state_ = State::kOpening;
  deadline_timer_ = link_.thread().timers().schedule(deadline, [this] {
    deadline_timer_ = 0;
    never_opened(Status(Code::kUnavailable, "the peer did not answer in time"));
    try_close();  // whatever it decides, it is too late
  });
  Message empty;
  // A refusal means that the engine is failing: on_engine_failed is to come, or has just been.
  const Status status = send_now(FrameKind::kSocketOpen, empty, 0);
  if (!status.ok() && state_ == State::kOpening) {
    peer_closed_ = close_sent_ = true;
    never_opened(status);
  }
}

void EngineSocket::decided(SocketHandler* handler) {
  Message answer;
  if (handler == nullptr) {
    state_ = State::kQuiet;
    close_sent_ = peer_closed_ = true;
    const auto body = encode_refusal(Status(Code::kUnavailable, "nobody accepts the socket"));
    answer.set_header(body.data(), body.size());
    send_now(FrameKind::kSocketRefuse, answer, 0).ignore();
    return;
  }
  handler_ = handler;
  state_ = State::kOpen;
  Status status = send_now(FrameKind::kSocketAccept, answer, 0);
  for (auto& [message, cookie] : std::exchange(held_, {})) {
    if (status.ok()) status = send_now(FrameKind::kMessage, message, cookie);
    if (!status.ok() && cookie != 0) handler->on_sent(*this, cookie, status);
  }
  if (close_held_) close();
}

Status EngineSocket::send(Message& message, uint64_t cookie) {
  if (state_ == State::kOpen) return send_now(FrameKind::kMessage, message, cookie);
  if (state_ != State::kDeciding || close_held_) {
    return error(Code::kClosed, "socket to {} is closed", remote().to_string());
  }
  if (message.bytes() > max_message_bytes()) {
    return error(Code::kInvalidArgument, "message of {} bytes, {} takes at most {}",
                 message.bytes(), remote().to_string(), max_message_bytes());
  }
  if (held_.size() == kMaxHeld) {
    return error(Code::kResourceExhausted, "{} messages are queued already", kMaxHeld);
  }
  held_.emplace_back(std::move(message), cookie);
  return {};
}

Status EngineSocket::send_now(FrameKind kind, Message& message, uint64_t cookie) {
  Status status = link_.send(id_, kind, message, cookie);
  if (status.ok()) ++in_flight_;
  return status;
}

void EngineSocket::close() {
  if (state_ == State::kDeciding) close_held_ = true;
  if (state_ != State::kOpen) return;
  state_ = State::kClosing;
  try_close();
}

// A full queue refuses it: then the next on_sent tries again.
void EngineSocket::try_close() {
  if (close_sent_) return;
  Message empty;
  close_sent_ = send_now(FrameKind::kSocketClose, empty, 0).ok();
}

bool EngineSocket::on_frame(FrameKind kind, Buffer payload) {
  switch (kind) {
    case FrameKind::kMessage:
      if (state_ == State::kOpen) {
        handler_->on_message(*this, std::move(payload));
        return true;
      }
      return (state_ == State::kClosing || state_ == State::kQuiet) && !peer_closed_;
    case FrameKind::kSocketAccept:
      if (state_ == State::kOpening) {
        on_accept();
        return true;
      }
      return state_ == State::kQuiet && !peer_closed_;
    case FrameKind::kSocketRefuse:
      if (peer_closed_ || (state_ != State::kOpening && state_ != State::kQuiet)) return false;
      peer_closed_ = true;
      if (state_ == State::kOpening) on_refuse(payload);
      advance_close();
      return true;
    case FrameKind::kSocketClose:
      if (peer_closed_ || state_ == State::kOpening || state_ == State::kDeciding) {
        return withdraw_reopening();
      }
      peer_closed_ = true;
      if (state_ == State::kOpen) on_peer_close();
      advance_close();
      return true;
    case FrameKind::kSocketOpen:
      if (!peer_closed_ || !close_sent_ || reopening_ != Reopening::kNo) return false;
      reopening_ = Reopening::kAsked;
      advance_close();
      return true;
  }
  return false;
}

bool EngineSocket::withdraw_reopening() {
  if (reopening_ != Reopening::kAsked) return false;
  reopening_ = Reopening::kWithdrawn;
  return true;
}

void EngineSocket::on_accept() {
  state_ = State::kOpen;
  if (deadline_timer_ != 0) link_.thread().timers().cancel(std::exchange(deadline_timer_, 0));
  handler_->on_open(*this);
}

void EngineSocket::on_refuse(const Buffer& payload) {
  close_sent_ = true;
  never_opened(decode_refusal(payload.bytes()).with_context("refused by peer"));
}

void EngineSocket::on_peer_close() {
  state_ = State::kClosing;
  // Whoever closed does not want what we have not begun to send.
  link_.stop_traffic(id_, error(Code::kClosed, "closed by {}", remote().to_string()));
  if (state_ == State::kClosing) try_close();
}

void EngineSocket::never_opened(const Status& why) {
  state_ = State::kQuiet;
  if (deadline_timer_ != 0) link_.thread().timers().cancel(std::exchange(deadline_timer_, 0));
  report_never_opened(thread(), remote(), std::exchange(handler_, nullptr),
                      why.with_context(fmt::format("connect to {}", remote().to_string())));
}

void EngineSocket::on_sent(uint64_t cookie, const Status& status) {
  assert(in_flight_ > 0);
  --in_flight_;
  if (cookie != 0 && handler_ != nullptr) handler_->on_sent(*this, cookie, status);
  if (state_ == State::kClosing || state_ == State::kQuiet) {
    try_close();
    advance_close();
  }
}

void EngineSocket::advance_close() {
  if (!close_sent_ || in_flight_ > 0) return;
  if (state_ == State::kClosing) {
    state_ = State::kQuiet;
    const Status why = peer_closed_ ? error(Code::kClosed, "closed by {}", remote().to_string())
                                    : Status(Code::kClosed, "closed");
    link_.stop_traffic(id_, why);  // what the peer is still sending is of no interest
    std::exchange(handler_, nullptr)->on_closed(*this, why);
  }
  if (state_ == State::kQuiet && peer_closed_) link_.release_socket(id_);
}

void EngineSocket::on_engine_failed(const Status& why) {
  if (handler_ == nullptr) return;
  if (state_ == State::kOpening) return never_opened(why);
  state_ = State::kQuiet;
  std::exchange(handler_, nullptr)->on_closed(*this, why);
}

}  // namespace be
