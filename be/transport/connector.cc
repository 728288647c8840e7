#include "be/transport/connector.h"

#include <memory>
#include <utility>

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

Connector::Connector(const TransportContext& context, IoThreadImpl& thread, const Address& remote,
                     Time deadline, SocketHandler* handler)
    : context_(context), thread_(thread), remote_(remote), deadline_(deadline), handler_(handler) {}

Connector::~Connector() {
  if (timer_ != 0) thread_.timers().cancel(timer_);
}

void Connector::start() {
  const Time began = thread_.now();
  timer_ = thread_.timers().schedule(deadline_, [this, began] {
    timer_ = 0;
    const auto waited =
        std::chrono::duration_cast<std::chrono::milliseconds>(thread_.now() - began);
    fail(error(Code::kUnavailable, "no {} within {} ms",
               state_ == State::kConnecting ? "connection" : "answer to the handshake",
               waited.count()));
  });
  Result<int> fd = context_.world.network().connect(remote_);
  if (!fd.ok()) return fail(fd.status());
  fd_ = *fd;
  const Status status = thread_.poller().add(fd_, this, true);
  if (!status.ok()) fail(status);
}

void Connector::on_ready(bool, bool) {
  Status status = context_.world.network().connect_result(fd_);
  if (status.ok()) status = connected();
  if (!status.ok()) fail(status);
}

Status Connector::connected() {
  thread_.poller().remove(fd_);
  channel_.emplace(thread_, std::exchange(fd_, -1), HandshakeChannel::Role::kClient,
                   context_.options.secret, static_cast<HandshakeUser*>(this));
  BE_RETURN_IF_ERROR(channel_->start());
  Hello hello;
  hello.has_secret = !context_.options.secret.empty();
  hello.max_message_bytes = context_.options.max_message_bytes;
  context_.world.random_bytes(hello.nonce);
  state_ = State::kHello;
  return channel_->send(HandshakeType::kClientHello, encode(hello));
}

void Connector::on_handshake_frame(HandshakeType type, std::span<const uint8_t> body) {
  if (state_ == State::kDone) return;
  const Status status = take_frame(type, body);
  if (!status.ok()) fail(status);
}

void Connector::on_handshake_failed(const Status& why) { fail(why); }

Status Connector::take_frame(HandshakeType type, std::span<const uint8_t> body) {
  if (type == HandshakeType::kRefuse) return decode_refusal(body).with_context("refused by peer");
  if (state_ == State::kHello && type == HandshakeType::kServerHello) return take_hello(body);
  if (state_ == State::kOpening && type == HandshakeType::kAcceptSocket && body.empty()) {
    opened();
    return {};
  }
  return error(Code::kProtocol, "unexpected handshake frame {}", static_cast<int>(type));
}

Status Connector::take_hello(std::span<const uint8_t> body) {
  BE_ASSIGN_OR_RETURN(const Hello theirs, decode_hello(body));
  peer_max_message_bytes_ = theirs.max_message_bytes;
  state_ = State::kOpening;
  return channel_->send(HandshakeType::kOpenSocket, {});
}

void Connector::opened() {
  TcpSocket* socket = thread_.adopt(std::make_unique<TcpSocket>(
      thread_, channel_->release(), remote_,
      TcpSocket::Limits{.max_send_bytes = peer_max_message_bytes_,
                        .max_receive_bytes = context_.options.max_message_bytes}));
  SocketHandler* const handler = handler_;
  finish();
  socket->start(handler, ok_status());
  if (socket->open()) handler->on_open(*socket);
}

void Connector::fail(const Status& why) {
  if (state_ == State::kDone) return;
  // The peer's side of the story; it may be gone.
  if (channel_) channel_->send(HandshakeType::kRefuse, encode_refusal(why)).ignore();
  end(why.with_context(fmt::format("connect to {}", remote_.to_string())));
}

void Connector::end(const Status& why) {
  if (state_ == State::kDone) return;
  log_info("{}", why.to_string());
  finish();
  report_never_opened(thread_, remote_, handler_, why);
}

void Connector::finish() {
  state_ = State::kDone;
  if (timer_ != 0) thread_.timers().cancel(std::exchange(timer_, 0));
  if (channel_) fd_ = channel_->release();
  if (fd_ >= 0) {
    thread_.poller().remove(fd_);
    context_.world.network().close(std::exchange(fd_, -1));
  }
  thread_.dispose(this);
}

}  // namespace be
