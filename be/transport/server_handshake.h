// ServerHandshake: the answering end of a new connection, until it is a socket or an engine.
//
//   kHello --ClientHello / ServerHello--> kRequest --OpenSocket / AcceptSocket--> done: TcpSocket
//
//   kRequest --Offer / Answer--> kLinking --Ready and our QP connected / Ready--> done: EngineLink
//      ^--Offer / Decline--'         '--Decline, or our failure / Decline--> kRequest
//
// Whatever is wrong (malformed, silent, wrong secret) ends this connection with one logged line;
// the listener never waits for it. Lives on one I/O thread, at most `handshake_timeout`.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "be/transport/acceptance.h"
#include "be/transport/engine_link.h"
#include "be/transport/half_open.h"
#include "be/transport/handshake_channel.h"
#include "be/transport/stream_fd.h"
#include "be/transport/transport_context.h"

namespace be {

class ServerHandshake final : public Resident, private HandshakeUser {
 public:
  ServerHandshake(const TransportContext& context, IoThreadImpl& thread, HalfOpen& half_open,
                  StreamFd fd, const Address& remote, std::shared_ptr<Acceptance> acceptance);
  ~ServerHandshake() override;

  void start();  // once adopted
  void shut_down(const Status& why) override { fail(why); }

 private:
  enum class State : uint8_t { kHello, kRequest, kLinking, kDone };

  void on_handshake_frame(HandshakeType type, std::span<const uint8_t> body) override;
  void on_handshake_failed(const Status& why) override { fail(why); }

  Status take_frame(HandshakeType type, std::span<const uint8_t> body);
  Status take_hello(std::span<const uint8_t> body);
  Status open_socket();
  Status take_offer(std::span<const uint8_t> body);
  Status answer(const EngineOffer& offer);
  void on_link(const Status& status);
  Status conclude();  // once the peer and our device have both said how it went
  Status decline(const Status& why);
  void drop_link(const Status& why);
  void fail(const Status& why);
  void finish();

  const TransportContext& context_;
  IoThreadImpl& thread_;
  HalfOpen& half_open_;
  const HalfOpen::Place place_;
  const Address remote_;
  const std::shared_ptr<Acceptance> acceptance_;
  HandshakeChannel channel_;
  State state_ = State::kHello;
  TimerId timer_ = 0;
  uint32_t peer_max_message_bytes_ = 0;

  EngineLink* link_ = nullptr;         // being set up
  std::optional<Status> link_status_;  // how connecting it went here
  bool peer_ready_ = false;
};

}  // namespace be
