#include "be/transport/server_handshake.h"

#include <utility>

#include "be/base/log.h"
#include "be/transport/tcp/tcp_socket.h"

namespace be {

ServerHandshake::ServerHandshake(const TransportContext& context, IoThreadImpl& thread,
                                 HalfOpen& half_open, StreamFd fd, const Address& remote,
                                 std::shared_ptr<Acceptance> acceptance)
    : context_(context),
      thread_(thread),
      half_open_(half_open),
      place_(half_open.enter(this)),
      remote_(remote),
      acceptance_(std::move(acceptance)),
      channel_(thread, fd.release(), HandshakeChannel::Role::kServer, context.options.secret,
               this) {}

ServerHandshake::~ServerHandshake() {
  if (timer_ != 0) thread_.timers().cancel(timer_);
}

void ServerHandshake::start() {
  const Nanoseconds timeout = context_.options.handshake_timeout;
  timer_ = thread_.timers().schedule(saturating_add(thread_.now(), timeout), [this, timeout] {
    timer_ = 0;
    fail(error(Code::kUnavailable, "no complete handshake within {} ms",
               std::chrono::duration_cast<std::chrono::milliseconds>(timeout).count()));
  });
  if (const Status status = channel_.start(); !status.ok()) return fail(status);
  if (ServerHandshake* oldest = half_open_.surplus()) {
    oldest->fail(
        error(Code::kResourceExhausted, "more than {} handshakes are under way", HalfOpen::kMax));
  }
}

void ServerHandshake::on_handshake_frame(HandshakeType type, std::span<const uint8_t> body) {
  if (state_ == State::kDone) return;
  const Status status = take_frame(type, body);
  if (!status.ok()) fail(status);
}

void ServerHandshake::on_handshake_failed(const Status& why) { fail(why); }

Status ServerHandshake::take_frame(HandshakeType type, std::span<const uint8_t> body) {
  if (type == HandshakeType::kRefuse) return decode_refusal(body).with_context("refused by peer");
  if (state_ == State::kHello && type == HandshakeType::kClientHello) return take_hello(body);
  if (state_ == State::kRequest && type == HandshakeType::kOpenSocket && body.empty()) {
    return open_socket();
  }
  return error(Code::kProtocol, "unexpected handshake frame {}", static_cast<int>(type));
}

Status ServerHandshake::take_hello(std::span<const uint8_t> body) {
  BE_ASSIGN_OR_RETURN(const Hello theirs, decode_hello(body));
  if (theirs.has_secret && context_.options.secret.empty()) {
    return Status(Code::kPermission, "the client demands a shared secret, this server has none");
  }
  if (!theirs.has_secret && !context_.options.secret.empty()) {
    return Status(Code::kPermission, "this server demands a shared secret, the client has none");
  }
  peer_max_message_bytes_ = theirs.max_message_bytes;
  Hello ours;
  ours.has_secret = theirs.has_secret;
  ours.max_message_bytes = context_.options.max_message_bytes;
  context_.world.random_bytes(ours.nonce);
  state_ = State::kRequest;
  return channel_.send(HandshakeType::kServerHello, encode(ours));
}

Status ServerHandshake::open_socket() {
  // The socket exists before it is accepted: the acceptor may send already.
  auto socket = std::make_unique<TcpSocket>(
      thread_, channel_.fd(), remote_,
      TcpSocket::Limits{.max_send_bytes = peer_max_message_bytes_,
                        .max_receive_bytes = context_.options.max_message_bytes});
  SocketHandler* handler = acceptance_->decide(*socket);
  if (handler == nullptr) {
    socket->abandon();
    return Status(Code::kUnavailable, "nobody accepts the socket");
  }
  Status status = channel_.send(HandshakeType::kAcceptSocket, {});
  if (status.ok() && !channel_.all_sent()) {
    status = Status(Code::kUnavailable, "the peer does not read");
  }
  channel_.release();
  thread_.adopt(std::move(socket))->start(handler, status);
  finish();
  return {};
}

void ServerHandshake::shut_down(const Status& why) { fail(why); }

void ServerHandshake::fail(const Status& why) {
  if (state_ == State::kDone) return;
  const Status named = why.with_context(fmt::format("handshake with {}", remote_.to_string()));
  if (why.code() == Code::kUnavailable || why.code() == Code::kClosed) {
    log_info("{}", named.to_string());
  } else {
    log_warn("{}", named.to_string());
  }
  channel_.send(HandshakeType::kRefuse, encode_refusal(why)).ignore();  // it may be gone
  finish();
}

void ServerHandshake::finish() {
  state_ = State::kDone;
  half_open_.leave(place_);
  const int fd = channel_.release();
  if (fd >= 0) context_.world.network().close(fd);
  thread_.dispose(this);
}

}  // namespace be
