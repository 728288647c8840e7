#include "be/rpc/lane.h"

#include <cassert>
#include <string>
#include <string_view>
#include <utility>

#include "be/base/log.h"
#include "be/rpc/channel_core.h"
#include "be/rpc/frame.h"

namespace be::rpc {
namespace {

// "connect to 127.0.0.1:9000: ECONNREFUSED ...", whether or not the cause has said so much.
Status unavailable(std::string_view what, const Address& server, const Status& cause) {
  const std::string address = server.to_string();
  const std::string& text = cause.message();
  if (text.find(address) != std::string::npos) {
    return text.starts_with(what) ? Status(Code::kUnavailable, text)
                                  : error(Code::kUnavailable, "{}: {}", what, text);
  }
  return error(Code::kUnavailable, "{} to {}: {}", what, address, text);
}

}  // namespace

void Lane::start(uint32_t index, Payload&& payload, Nanoseconds left) {
  core_.calls().slot(index).lane = number_;
  if (state_ == State::kOpen && first_waiting_ == CallTable::kNone && send(index, payload, left))
    return;
  push_waiting(index, std::move(payload));
  if (state_ == State::kIdle) connect();
}

void Lane::connect() {
  state_ = State::kConnecting;
  core_alive_ = core_.shared_from_this();
  const ChannelOptions& options = core_.options();
  core_.node().connect(core_.server(), {options.connect_timeout, options.transport}, this);
}

// True: the call waits no longer (the transport has it, or it has ended).
bool Lane::send(uint32_t index, Payload& payload, Nanoseconds left) {
  CallTable::Slot& slot = core_.calls().slot(index);
  FrameHeader header;
  header.type = FrameType::kRequest;
  header.method = slot.method;
  header.call_id = core_.calls().id_of(index);
  header.timeout_us = timeout_on_wire(left);
  Message frame;
  make_frame(frame, header, payload);
  Status status = socket_->send(frame, header.call_id);
  if (status.ok()) {
    if (slot.state == CallState::kWaiting) unlink_waiting(index);
    slot.state = CallState::kSent;
    return true;
  }
  if (status.code() == Code::kResourceExhausted || status.code() == Code::kClosed) {
    take_back(frame, payload);  // on_sent or on_closed follows
    return false;
  }
  core_.end_later(index, std::move(status));
  return true;
}

void Lane::send_waiting() {
  const Time now = core_.thread().now();
  while (state_ == State::kOpen && first_waiting_ != CallTable::kNone) {
    const uint32_t index = first_waiting_;
    Payload payload = std::move(core_.calls().waiting(index).payload);
    if (!send(index, payload, core_.calls().slot(index).deadline - now)) {
      core_.calls().waiting(index).payload = std::move(payload);
      return;
    }
  }
}

void Lane::push_waiting(uint32_t index, Payload&& payload) {
  CallTable& calls = core_.calls();
  calls.slot(index).state = CallState::kWaiting;
  CallTable::Waiting& waiting = calls.waiting(index);
  waiting.payload = std::move(payload);
  waiting.next = CallTable::kNone;
  waiting.previous = last_waiting_;
  (last_waiting_ == CallTable::kNone ? first_waiting_ : calls.waiting(last_waiting_).next) = index;
  last_waiting_ = index;
}

void Lane::unlink_waiting(uint32_t index) {
  CallTable& calls = core_.calls();
  const CallTable::Waiting& waiting = calls.waiting(index);
  (waiting.previous == CallTable::kNone ? first_waiting_ : calls.waiting(waiting.previous).next) =
      waiting.next;
  (waiting.next == CallTable::kNone ? last_waiting_ : calls.waiting(waiting.next).previous) =
      waiting.previous;
}

void Lane::stop_waiting(uint32_t index) {
  unlink_waiting(index);
  core_.calls().waiting(index).payload = Payload();
}

void Lane::send_cancel(CallId call) {
  if (state_ != State::kOpen) return;
  FrameHeader header;
  header.type = FrameType::kCancel;
  header.call_id = call;
  Message frame;
  frame.set_header(&header, sizeof(header));
  socket_->send(frame, 0).ignore();  // it only spares the server work
}

void Lane::close() {
  if (state_ != State::kOpen) return;  // kConnecting: on_open sees that the channel is shut down
  state_ = State::kClosing;
  std::exchange(socket_, nullptr)->close();
}

void Lane::on_open(Socket& socket) {
  assert(&socket.thread() == &core_.thread());
  socket_ = &socket;
  state_ = State::kOpen;
  if (core_.shutting_down()) return close();
  core_.update_transport();
  send_waiting();
}

void Lane::on_message(Socket&, Buffer message) {
  if (state_ != State::kOpen) return;
  FrameHeader header;
  if (const Status status = parse_frame(message, header); !status.ok()) return break_off(status);
  if (header.type != FrameType::kResponse) {
    return break_off(
        error(Code::kProtocol, "rpc frame: a server sent type {}", static_cast<int>(header.type)));
  }
  CallTable& calls = core_.calls();
  const uint32_t index = calls.find(header.call_id);
  if (index == CallTable::kNone || calls.slot(index).state != CallState::kSent ||
      calls.slot(index).lane != number_) {
    return core_.count_late_response();
  }
  Payload payload = split_frame(header, std::move(message));
  if (header.code == 0) return core_.end(index, std::move(payload));
  core_.end(index, error_of_response(header, payload.body));
}

void Lane::break_off(const Status& why) {
  const std::shared_ptr<ChannelCore> core = core_alive_;
  log_error("{}, from {}: closing the connection", why.to_string(), core->server().to_string());
  close();
  core->end_all_of_lane(number_, /*waiting_too=*/false,
                        error(Code::kUnavailable, "connection to {} given up: {}",
                              core->server().to_string(), why.message()));
}

// `cookie`: the call's id.
void Lane::on_sent(Socket&, uint64_t cookie, const Status& status) {
  if (first_waiting_ != CallTable::kNone) send_waiting();
  // Refused by the other end; any other failure is one of the connection, which on_closed tells.
  if (status.code() != Code::kResourceExhausted && status.code() != Code::kInvalidArgument) return;
  CallTable& calls = core_.calls();
  const uint32_t index = calls.find(cookie);
  if (index == CallTable::kNone || calls.slot(index).state != CallState::kSent ||
      calls.slot(index).lane != number_) {
    return;
  }
  core_.end(index, status.with_context("the request"));
}

void Lane::on_closed(Socket&, const Status& status) {
  const std::shared_ptr<ChannelCore> core = std::move(core_alive_);
  const State before = std::exchange(state_, State::kIdle);
  socket_ = nullptr;
  core->update_transport();
  const bool waiting_too = before != State::kClosing;
  core->end_all_of_lane(number_, waiting_too,
                        unavailable(before == State::kConnecting ? "connect" : "connection lost",
                                    core->server(), status));
  if (state_ == State::kIdle && first_waiting_ != CallTable::kNone) connect();
}

}  // namespace be::rpc
