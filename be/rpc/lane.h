// Lane: one socket of a Channel (small or bulk) and the calls that wait for it.
//
//   kIdle --start()--> kConnecting --on_open--> kOpen --bad frame, shutdown--> kClosing
//     ^                    |                      |                               |
//     +---------------- on_closed ----------------+-------------------------------+
//
//   kConnecting failed, kOpen lost   every call of the lane ends with kUnavailable and the cause
//   kClosing                         sent calls have ended; what came since waits, and reconnects
//
// Calls wait while connecting, and while the socket's queue is full (until an on_sent); the queue
// is a list through the call table, so it is bounded by max_outstanding and a call leaves its
// middle in O(1).
//
// Part of a ChannelCore, on its I/O thread only. Keeps the core alive while it has a socket.
#pragma once

#include <cstdint>
#include <memory>

#include "be/rpc/call_table.h"
#include "be/transport/node.h"

namespace be::rpc {

class ChannelCore;

class Lane final : public SocketHandler {
 public:
  Lane(ChannelCore& core, uint8_t number) : core_(core), number_(number) {}
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // Sends the call in slot `index`, or lets it wait. `left` is the time to its deadline.
  void start(uint32_t index, Payload&& payload, Nanoseconds left);
  void stop_waiting(uint32_t index);  // requires that the call waits here; frees its payload
  void send_cancel(CallId call);      // tells the server, if it can be told now
  void close();
  const Socket* socket() const { return socket_; }  // null unless connected

  void on_open(Socket& socket) override;
  void on_message(Socket& socket, Buffer message) override;
  void on_sent(Socket& socket, uint64_t cookie, const Status& status) override;
  void on_closed(Socket& socket, const Status& status) override;

 private:
  enum class State : uint8_t { kIdle, kConnecting, kOpen, kClosing };

  void connect();
  bool send(uint32_t index, Payload& payload, Nanoseconds left);
  void send_waiting();
  void push_waiting(uint32_t index, Payload&& payload);
  void unlink_waiting(uint32_t index);
  void break_off(const Status& why);

  ChannelCore& core_;
  const uint8_t number_;
  State state_ = State::kIdle;
  Socket* socket_ = nullptr;  // while kOpen
  uint32_t first_waiting_ = CallTable::kNone;
  uint32_t last_waiting_ = CallTable::kNone;
  std::shared_ptr<ChannelCore> core_alive_;  // while not kIdle
};

}  // namespace be::rpc
