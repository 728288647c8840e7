#include "be/transport/connector.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "be/base/failpoint.h"
#include "be/base/log.h"
#include "be/transport/tcp/tcp_socket.h"

namespace be {
namespace {

// A socket that never came to be, so that on_closed has something to name.
class NeverOpened final : public Socket {
 public:
  NeverOpened(IoThread& thread, const Address& remote) : thread_(thread), remote_(remote) {}

  Status send(Message&, uint64_t) override {
    return error(Code::kClosed, "socket to {} was never open", remote_.to_string());
  }
  void close() override {}
  TransportKind transport() const override { return TransportKind::kTcp; }
  const Address& remote() const override { return remote_; }
  IoThread& thread() const override { return thread_; }
  size_t max_message_bytes() const override { return 0; }

 private:
  IoThread& thread_;
  const Address remote_;
};

}  // namespace

void report_never_opened(IoThread& thread, const Address& remote, SocketHandler* handler,
                         const Status& why) {
  NeverOpened socket(thread, remote);
  handler->on_closed(socket, why);
}

bool allows(TransportChoice choice, DeviceKind kind) {
  switch (choice) {
    case TransportChoice::kAuto:
      return true;
    case TransportChoice::kSoftnic:
      return kind == DeviceKind::kSoftnic;
    case TransportChoice::kRdma:
      return kind != DeviceKind::kSoftnic;
    case TransportChoice::kTcp:
      return false;
  }
  return false;
}

uint8_t device_kinds(const TransportContext& context) {
  int kinds = 0;
  for (const NodeDevice& device : context.devices) {
    kinds |= 1 << static_cast<int>(device.device->kind());
  }
  return static_cast<uint8_t>(kinds);
}

Connector::Connector(const TransportContext& context, IoThreadImpl& thread, const Address& remote,
                     TransportChoice choice, ConnectorOwner* owner)
    : context_(context), thread_(thread), remote_(remote), choice_(choice), owner_(owner) {}

Connector::~Connector() = default;

void Connector::add(SocketHandler* handler, Time deadline) {
  const TimerId timer = thread_.timers().schedule(deadline, [this, handler] { give_up(handler); });
  waiting_.push_back({handler, deadline, timer});
}

void Connector::give_up(SocketHandler* handler) {
  const Status why = error(Code::kUnavailable, "no {} in time",
                           state_ == State::kConnecting ? "connection"
                           : state_ == State::kHello    ? "answer to the handshake"
                                                        : "end of the handshake");
  if (waiting_.size() == 1) return fail(why);
  const auto entry = std::find_if(waiting_.begin(), waiting_.end(),
                                  [handler](const Waiting& w) { return w.handler == handler; });
  waiting_.erase(entry);
  report_never_opened(thread_, remote_, handler,
                      why.with_context(fmt::format("connect to {}", remote_.to_string())));
}

void Connector::start() {
  Result<int> fd = context_.world.network().connect(remote_);
  if (!fd.ok()) return fail(fd.status());
  fd_ = *fd;
  BE_FAILPOINT("transport.connector.connecting");
  const Status status = thread_.poller().add(fd_, this, true);
  if (!status.ok()) fail(status);
}

void Connector::on_ready(bool, bool) {
  Status status = context_.world.network().connect_result(fd_);
  if (status.ok()) status = connected();
  if (!status.ok()) fail(status);
}

Status Connector::connected() {
  BE_FAILPOINT("transport.connector.connected");
  thread_.poller().remove(fd_);
  channel_.emplace(thread_, std::exchange(fd_, -1), HandshakeChannel::Role::kClient,
                   context_.options.secret, static_cast<HandshakeUser*>(this));
  BE_RETURN_IF_ERROR(channel_->start());
  Hello hello;
  hello.has_secret = !context_.options.secret.empty();
  hello.device_kinds = device_kinds(context_);
  hello.max_message_bytes = context_.options.max_message_bytes;
  context_.world.random_bytes(hello.nonce);
  state_ = State::kHello;
  Status sent = channel_->send(HandshakeType::kClientHello, encode(hello));
  BE_FAILPOINT("transport.connector.hello_sent");
  return sent;
}

void Connector::on_handshake_frame(HandshakeType type, std::span<const uint8_t> body) {
  if (state_ == State::kDone) return;
  const Status status = take_frame(type, body);
  if (!status.ok()) fail(status);
}

Status Connector::take_frame(HandshakeType type, std::span<const uint8_t> body) {
  if (type == HandshakeType::kRefuse) return decode_refusal(body).with_context("refused by peer");
  switch (state_) {
    case State::kHello:
      if (type == HandshakeType::kServerHello) return take_hello(body);
      break;
    case State::kOffering:
      if (type == HandshakeType::kAnswer) return take_answer(body);
      if (type == HandshakeType::kDecline) return take_decline(body);
      break;
    case State::kDeclining:
      if (type == HandshakeType::kDecline) return offer_next();
      break;
    case State::kReady:
      if (type == HandshakeType::kDecline) return take_decline(body);
      if (type == HandshakeType::kReady && body.empty()) {
        established();
        return {};
      }
      break;
    case State::kOpening:
      if (type == HandshakeType::kAcceptSocket && body.empty()) {
        opened();
        return {};
      }
      break;
    case State::kConnecting:
    case State::kLinking:
    case State::kDone:
      break;
  }
  return error(Code::kProtocol, "unexpected handshake frame {}", static_cast<int>(type));
}

Status Connector::take_hello(std::span<const uint8_t> body) {
  BE_ASSIGN_OR_RETURN(theirs_, decode_hello(body));
  BE_FAILPOINT("transport.connector.hello_received");
  return offer_next();
}

void Connector::opened() {
  TcpSocket* socket = thread_.adopt(std::make_unique<TcpSocket>(
      thread_, channel_->release(), remote_,
      TcpSocket::Limits{.max_send_bytes = theirs_.max_message_bytes,
                        .max_receive_bytes = context_.options.max_message_bytes,
                        .memory_patience = context_.options.engine.keepalive_timeout}));
  const std::vector<Waiting> waiting = finish();
  // Before the first callback: it may connect again.
  for (size_t i = 1; i < waiting.size(); ++i) {
    owner_->connect_tcp(remote_, waiting[i].deadline, waiting[i].handler);
  }
  SocketHandler* const handler = waiting.front().handler;
  socket->start(handler, ok_status());
  if (socket->open()) handler->on_open(*socket);
}

void Connector::fail(const Status& why) {
  if (state_ == State::kDone) return;
  // Our side of the story; the peer may be gone. After our last frame it may have ended the
  // handshake already: a Refuse would be taken for what follows.
  const bool last_frame_sent = state_ == State::kReady || state_ == State::kOpening;
  if (channel_ && !last_frame_sent) {
    channel_->send(HandshakeType::kRefuse, encode_refusal(why)).ignore();
  }
  end(why.with_context(fmt::format("connect to {}", remote_.to_string())));
}

void Connector::end(const Status& why) {
  if (state_ == State::kDone) return;
  log_info("{}", why.to_string());
  drop_link(why);
  for (const Waiting& waiting : finish()) {
    report_never_opened(thread_, remote_, waiting.handler, why);
  }
}

// Returns who waited; from now on they are the caller's.
std::vector<Connector::Waiting> Connector::finish() {
  state_ = State::kDone;
  for (const Waiting& waiting : waiting_) thread_.timers().cancel(waiting.timer);
  if (channel_) fd_ = channel_->release();
  if (fd_ >= 0) {
    thread_.poller().remove(fd_);
    context_.world.network().close(std::exchange(fd_, -1));
  }
  owner_->on_attempt_ended(this);
  thread_.dispose(this);
  return std::exchange(waiting_, {});
}

}  // namespace be
