// Connector: one connection to a peer, from connect() until it is an engine, one TCP socket, or
// nothing; and the sockets that wait for it.
//
//   kConnecting --connected, ClientHello--> kHello --ServerHello--> next device
//
//   next device:  Offer -> kOffering --Answer, QP connects--> kLinking --connected, Ready-->
//                 kReady --Ready--> done: EngineLink, every waiting socket is opened on it
//   any failure on that way, ours or the peer's Decline: next device
//   a device over which nothing came back lately: next device, with `auto`
//   no device left:  auto: OpenSocket -> kOpening --AcceptSocket--> done: TcpSocket for the first
//                    that waits; the others get TCP connections of their own
//                    softnic, rdma: failure
//
// Every waiting handler hears exactly once how it ended: on_open, or on_closed with the address
// and the cause, at its own deadline at the latest. Nobody left waiting: the attempt ends.
// Lives on one I/O thread.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "be/transport/engine_link.h"
#include "be/transport/handshake_channel.h"
#include "be/transport/transport_context.h"

namespace be {

class Connector;

bool allows(TransportChoice choice, DeviceKind kind);
uint8_t device_kinds(const TransportContext& context);  // for our hello

// on_closed for a socket that never came to be.
void report_never_opened(IoThread& thread, const Address& remote, SocketHandler* handler,
                         const Status& why);

// The table that connectors and their engines belong to.
class ConnectorOwner {
 public:
  virtual void on_engine(EngineLink* link) = 0;
  virtual void on_link_ended(EngineLink* link) = 0;
  virtual void on_attempt_ended(Connector* connector) = 0;
  virtual void connect_tcp(const Address& remote, Time deadline, SocketHandler* handler) = 0;
  // ok unless engines over this device have proved to be of no use (connector_paths.h).
  virtual Status check_path(const Address& remote, const NodeDevice& device) const = 0;

 protected:
  ~ConnectorOwner() = default;
};

class Connector final : public Resident, private PollHandler, private HandshakeUser {
 public:
  Connector(const TransportContext& context, IoThreadImpl& thread, const Address& remote,
            TransportChoice choice, ConnectorOwner* owner);
  ~Connector() override;

  void add(SocketHandler* handler, Time deadline);
  void start();  // once adopted, with the first socket waiting
  void shut_down(const Status& why) override { end(why); }

  TransportChoice choice() const { return choice_; }
  const Address& remote() const { return remote_; }

 private:
  enum class State : uint8_t {
    kConnecting,
    kHello,
    kOffering,
    kLinking,
    kReady,
    kDeclining,  // we have declined the Answer; the peer's Decline will follow
    kOpening,
    kDone,
  };
  struct Waiting {
    SocketHandler* handler;
    Time deadline;
    TimerId timer;
  };

  void on_ready(bool readable, bool writable) override;
  void on_handshake_frame(HandshakeType type, std::span<const uint8_t> body) override;
  void on_handshake_failed(const Status& why) override { fail(why); }

  // connector.cc
  Status connected();
  Status take_frame(HandshakeType type, std::span<const uint8_t> body);
  Status take_hello(std::span<const uint8_t> body);
  void opened();
  void give_up(SocketHandler* handler);  // its deadline has come
  void fail(const Status& why);
  void end(const Status& why);
  std::vector<Waiting> finish();

  // connector_engine.cc
  Status offer_next();
  Status offer_on(const NodeDevice& device);
  Status take_answer(std::span<const uint8_t> body);
  void on_link(const Status& status);
  Status decline(const Status& why);
  Status take_decline(std::span<const uint8_t> body);
  Status fall_back();
  void established();
  void drop_link(const Status& why);

  const TransportContext& context_;
  IoThreadImpl& thread_;
  const Address remote_;
  const TransportChoice choice_;
  ConnectorOwner* const owner_;
  State state_ = State::kConnecting;
  std::vector<Waiting> waiting_;
  int fd_ = -1;  // while connecting; then the channel's
  std::optional<HandshakeChannel> channel_;
  Hello theirs_;
  size_t next_device_ = 0;
  EngineLink* link_ = nullptr;  // being set up
  Status no_engine_;            // why there is none so far
};

}  // namespace be
