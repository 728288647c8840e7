// Connector: one attempt to open a socket, from connect() until the socket is there or is not.
//
//   kConnecting --connected--> kHello --ServerHello--> kOpening --AcceptSocket--> kDone: TcpSocket
//
// The handler hears of it exactly once: on_open, or on_closed with the address and the cause.
// Lives on one I/O thread, at most `connect_timeout`.
#pragma once

#include <optional>
#include <span>

#include "be/transport/handshake_channel.h"
#include "be/transport/transport_context.h"

namespace be {

// on_closed for a socket that never came to be.
void report_never_opened(IoThread& thread, const Address& remote, SocketHandler* handler,
                         const Status& why);

class Connector final : public Resident, private PollHandler, private HandshakeUser {
 public:
  Connector(const TransportContext& context, IoThreadImpl& thread, const Address& remote,
            Time deadline, SocketHandler* handler);
  ~Connector() override;

  void start();  // once adopted
  void shut_down(const Status& why) override { end(why); }

 private:
  enum class State : uint8_t { kConnecting, kHello, kOpening, kDone };

  void on_ready(bool readable, bool writable) override;
  void on_handshake_frame(HandshakeType type, std::span<const uint8_t> body) override;
  void on_handshake_failed(const Status& why) override;

  Status connected();
  Status take_frame(HandshakeType type, std::span<const uint8_t> body);
  Status take_hello(std::span<const uint8_t> body);
  void opened();
  void fail(const Status& why);
  void end(const Status& why);
  void finish();

  const TransportContext& context_;
  IoThreadImpl& thread_;
  const Address remote_;
  const Time deadline_;
  SocketHandler* const handler_;
  State state_ = State::kConnecting;
  int fd_ = -1;  // while connecting; then the channel's
  std::optional<HandshakeChannel> channel_;
  TimerId timer_ = 0;
  uint32_t peer_max_message_bytes_ = 0;
};

}  // namespace be
