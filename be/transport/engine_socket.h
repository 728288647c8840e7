// EngineSocket: one of the sockets that share an engine.
//
//   connector: kOpening --Accept--> kOpen            listener: kDeciding --accepted--> kOpen
//
//   kOpen --close()--> kClosing --our SocketClose and all before it sent--> kQuiet --peer's
//     |                  ^                                          SocketClose--> released
//     '--peer's SocketClose: unsent messages end with kClosed--'
//
// on_closed is called on the way from kClosing to kQuiet, when the engine fails, or, for a socket
// that never opened, by a refusal or the deadline (then kQuiet too, until the peer answers).
// Owned by its EngineLink, used on its I/O thread.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "be/base/timer_queue.h"
#include "be/engine/frame_kind.h"
#include "be/transport/socket.h"

namespace be {

class EngineLink;

class EngineSocket final : public Socket {
 public:
  EngineSocket(EngineLink& link, SocketId id) : link_(link), id_(id) {}
  ~EngineSocket() override;

  void open(SocketHandler* handler, Time deadline);  // connector: sends SocketOpen
  void decided(SocketHandler* handler);              // listener; null: refused

  Status send(Message& message, uint64_t cookie) override;
  void close() override;
  TransportKind transport() const override;
  std::string_view device_name() const override;
  const Address& remote() const override;
  IoThread& thread() const override;
  size_t max_message_bytes() const override;

  // By the link; false: such a frame makes no sense now.
  bool on_frame(FrameKind kind, Buffer payload);
  void on_sent(uint64_t cookie, const Status& status);
  void on_engine_failed(const Status& why);

  // The connector may use the id again before we have been told that our last frames were sent:
  // its SocketOpen then waits for that, and it may give up meanwhile.
  enum class Reopening : uint8_t { kNo, kAsked, kWithdrawn };
  Reopening reopening() const { return reopening_; }

 private:
  enum class State : uint8_t { kDeciding, kOpening, kOpen, kClosing, kQuiet };

  Status send_now(FrameKind kind, Message& message, uint64_t cookie);
  void on_accept();
  void on_refuse(const Buffer& payload);
  void on_peer_close();
  bool withdraw_reopening();
  void never_opened(const Status& why);
  void try_close();
  void advance_close();

  EngineLink& link_;
  const SocketId id_;
  State state_ = State::kDeciding;
  SocketHandler* handler_ = nullptr;  // null once it has had on_closed
  uint32_t in_flight_ = 0;            // frames of ours whose on_sent is still to come
  bool close_sent_ = false;
  bool peer_closed_ = false;
  Reopening reopening_ = Reopening::kNo;
  TimerId deadline_timer_ = 0;
  std::vector<std::pair<Message, uint64_t>> held_;  // sent by the acceptor while it decided
  bool close_held_ = false;
};

}  // namespace be
