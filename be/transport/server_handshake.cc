#include "be/transport/server_handshake.h"

#include <utility>

#include "be/base/failpoint.h"
#include "be/base/log.h"
#include "be/transport/connector.h"
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
  BE_FAILPOINT("transport.server.accepted");
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

Status ServerHandshake::take_frame(HandshakeType type, std::span<const uint8_t> body) {
  if (type == HandshakeType::kRefuse) return decode_refusal(body).with_context("refused by peer");
  if (state_ == State::kHello && type == HandshakeType::kClientHello) return take_hello(body);
  if (state_ == State::kRequest) {
    if (type == HandshakeType::kOpenSocket && body.empty()) return open_socket();
    if (type == HandshakeType::kOffer) return take_offer(body);
  }
  if (state_ == State::kLinking && !peer_ready_) {
    if (type == HandshakeType::kReady && body.empty()) {
      peer_ready_ = true;
      BE_FAILPOINT("transport.server.ready_received");
      return conclude();
    }
    if (type == HandshakeType::kDecline) {
      return decline(decode_refusal(body).with_context("declined by the peer"));
    }
  }
  return error(Code::kProtocol, "unexpected handshake frame {}", static_cast<int>(type));
}

Status ServerHandshake::take_hello(std::span<const uint8_t> body) {
  BE_ASSIGN_OR_RETURN(const Hello theirs, decode_hello(body));
  BE_FAILPOINT("transport.server.hello_received");
  if (theirs.has_secret && context_.options.secret.empty()) {
    return Status(Code::kPermission, "the client demands a shared secret, this server has none");
  }
  if (!theirs.has_secret && !context_.options.secret.empty()) {
    return Status(Code::kPermission, "this server demands a shared secret, the client has none");
  }
  peer_max_message_bytes_ = theirs.max_message_bytes;
  Hello ours;
  ours.has_secret = theirs.has_secret;
  ours.device_kinds = device_kinds(context_);
  ours.max_message_bytes = context_.options.max_message_bytes;
  context_.world.random_bytes(ours.nonce);
  state_ = State::kRequest;
  Status sent = channel_.send(HandshakeType::kServerHello, encode(ours));
  BE_FAILPOINT("transport.server.hello_sent");
  return sent;
}

Status ServerHandshake::open_socket() {
  // The socket exists before it is accepted: the acceptor may send already.
  auto socket = std::make_unique<TcpSocket>(
      thread_, channel_.fd(), remote_,
      TcpSocket::Limits{.max_send_bytes = peer_max_message_bytes_,
                        .max_receive_bytes = context_.options.max_message_bytes,
                        .memory_patience = context_.options.engine.keepalive_timeout});
  SocketHandler* handler = acceptance_->decide(*socket);
  if (handler == nullptr) {
    socket->abandon();
    return Status(Code::kUnavailable, "nobody accepts the socket");
  }
  Status status = channel_.send(HandshakeType::kAcceptSocket, {});
  BE_FAILPOINT("transport.server.socket_accepted");
  if (status.ok() && !channel_.all_sent()) {
    status = Status(Code::kUnavailable, "the peer does not read");
  }
  channel_.release();
  thread_.adopt(std::move(socket))->start(handler, status);
  finish();
  return {};
}

Status ServerHandshake::take_offer(std::span<const uint8_t> body) {
  BE_ASSIGN_OR_RETURN(const EngineOffer offer, decode_engine_offer(body));
  BE_FAILPOINT("transport.server.offer_received");
  const Status status = answer(offer);
  return status.ok() ? status : decline(status);
}

Status ServerHandshake::answer(const EngineOffer& offer) {
  const NodeDevice* device = nullptr;
  for (const NodeDevice& each : context_.devices) {
    if (device == nullptr && each.device->kind() == offer.kind) device = &each;
  }
  if (device == nullptr) {
    return error(Code::kUnsupported, "no {} device here", device_kind_name(offer.kind));
  }
  BE_RETURN_IF_ERROR(device->device->reachable(offer.endpoint));
  BE_ASSIGN_OR_RETURN(
      link_, EngineLink::create(context_, thread_, *device, remote_, EngineLink::Side::kListener));
  BE_FAILPOINT("transport.server.link_created");
  BE_ASSIGN_OR_RETURN(EngineOffer ours, link_->offer());
  context_.world.random_bytes(ours.token);
  link_status_.reset();
  peer_ready_ = false;
  // Before the answer goes out: the peer's device may knock at once.
  BE_RETURN_IF_ERROR(
      link_->connect(offer, ours.token, [this](const Status& status) { on_link(status); }));
  state_ = State::kLinking;
  BE_FAILPOINT("transport.server.linking");
  Status sent = channel_.send(HandshakeType::kAnswer, encode(ours));
  BE_FAILPOINT("transport.server.answer_sent");
  return sent;
}

void ServerHandshake::on_link(const Status& status) {
  link_status_ = status;
  BE_FAILPOINT("transport.server.linked");
  if (!status.ok()) link_ = nullptr;  // it ends by itself
  const Status next = conclude();
  if (!next.ok()) fail(next);
}

Status ServerHandshake::conclude() {
  if (!peer_ready_ || !link_status_) return {};  // the client's turn comes first
  if (!link_status_->ok()) return decline(*link_status_);
  BE_RETURN_IF_ERROR(channel_.send(HandshakeType::kReady, {}));
  BE_FAILPOINT("transport.server.ready_sent");
  if (!channel_.all_sent()) return Status(Code::kUnavailable, "the peer does not read");
  EngineLink* link = std::exchange(link_, nullptr);
  link->establish(StreamFd(context_.world, channel_.release()), acceptance_, nullptr);
  BE_FAILPOINT("transport.server.established");
  finish();
  return {};
}

Status ServerHandshake::decline(const Status& why) {
  log_info("no engine with {}: {}", remote_.to_string(), why.to_string());
  drop_link(why);
  state_ = State::kRequest;
  return channel_.send(HandshakeType::kDecline, encode_refusal(why));
}

void ServerHandshake::drop_link(const Status& why) {
  if (EngineLink* link = std::exchange(link_, nullptr)) link->abandon(why);
}

void ServerHandshake::fail(const Status& why) {
  if (state_ == State::kDone) return;
  const Status named = why.with_context(fmt::format("handshake with {}", remote_.to_string()));
  if (why.code() == Code::kUnavailable || why.code() == Code::kClosed) {
    log_info("{}", named.to_string());
  } else {
    log_warn("{}", named.to_string());
  }
  channel_.send(HandshakeType::kRefuse, encode_refusal(why)).ignore();  // it may be gone
  drop_link(why);
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
