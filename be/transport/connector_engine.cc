// The connecting end of an engine's set-up; see connector.h.
#include <utility>

#include "be/base/failpoint.h"
#include "be/base/log.h"
#include "be/transport/connector.h"
#include "be/transport/engine_offer.h"

namespace be {

Status Connector::offer_next() {
  while (choice_ != TransportChoice::kTcp && next_device_ < context_.devices.size()) {
    const NodeDevice& device = context_.devices[next_device_++];
    const DeviceKind kind = device.device->kind();
    if (!allows(choice_, kind)) continue;
    if (!theirs_.offers(kind)) {
      no_engine_ = error(Code::kUnsupported, "the peer has no {} device", device_kind_name(kind));
      continue;
    }
    Status status;
    if (choice_ == TransportChoice::kAuto) status = owner_->check_path(remote_, device);
    if (status.ok()) {
      status = offer_on(device);
      if (status.ok()) return status;
      drop_link(status);
    }
    no_engine_ = std::move(status);
  }
  if (choice_ != TransportChoice::kTcp && choice_ != TransportChoice::kAuto) {
    if (no_engine_.ok()) no_engine_ = Status(Code::kUnsupported, "this node has no such device");
    return no_engine_.with_context(choice_ == TransportChoice::kSoftnic ? "no softnic engine"
                                                                        : "no rdma engine");
  }
  return fall_back();
}

Status Connector::fall_back() {
  if (!no_engine_.ok()) {
    log_info("{} is served over TCP: {}", remote_.to_string(), no_engine_.to_string());
  }
  state_ = State::kOpening;
  Status sent = channel_->send(HandshakeType::kOpenSocket, {});
  BE_FAILPOINT("transport.connector.open_socket_sent");
  return sent;
}

Status Connector::offer_on(const NodeDevice& device) {
  BE_ASSIGN_OR_RETURN(
      link_, EngineLink::create(context_, thread_, device, remote_, EngineLink::Side::kConnector));
  BE_FAILPOINT("transport.connector.link_created");
  BE_ASSIGN_OR_RETURN(const EngineOffer offer, link_->offer());
  state_ = State::kOffering;
  Status sent = channel_->send(HandshakeType::kOffer, encode(offer));
  BE_FAILPOINT("transport.connector.offer_sent");
  return sent;
}

Status Connector::take_answer(std::span<const uint8_t> body) {
  BE_ASSIGN_OR_RETURN(const EngineOffer answer, decode_engine_offer(body));
  if (answer.kind != link_->kind()) {
    return Status(Code::kProtocol, "the answer names another kind of device than the offer");
  }
  state_ = State::kLinking;
  BE_FAILPOINT("transport.connector.answer_received");
  const Status status =
      link_->connect(answer, answer.token, [this](const Status& how) { on_link(how); });
  BE_FAILPOINT("transport.connector.linking");
  return status.ok() ? status : decline(status);
}

void Connector::on_link(const Status& status) {
  if (status.ok()) {
    state_ = State::kReady;
    BE_FAILPOINT("transport.connector.linked");
    const Status sent = channel_->send(HandshakeType::kReady, {});
    BE_FAILPOINT("transport.connector.ready_sent");
    if (!sent.ok()) fail(sent);
    return;
  }
  link_ = nullptr;  // it ends by itself
  if (state_ != State::kReady) {
    const Status sent = decline(status);
    if (!sent.ok()) fail(sent);
    return;
  }
  // The peer may call this connection the engine's already: it is of no use any more.
  if (choice_ != TransportChoice::kAuto) return fail(status);
  log_info("{} is served over TCP: {}", remote_.to_string(), status.to_string());
  for (const Waiting& waiting : finish()) {
    owner_->connect_tcp(remote_, waiting.deadline, waiting.handler);
  }
}

Status Connector::decline(const Status& why) {
  drop_link(why);
  no_engine_ = why;
  state_ = State::kDeclining;
  return channel_->send(HandshakeType::kDecline, encode_refusal(why));
}

Status Connector::take_decline(std::span<const uint8_t> body) {
  no_engine_ = decode_refusal(body).with_context("declined by the peer");
  if (no_engine_.code() == Code::kProtocol) return no_engine_;
  drop_link(no_engine_);
  return offer_next();
}

void Connector::established() {
  BE_FAILPOINT("transport.connector.ready_received");
  EngineLink* link = std::exchange(link_, nullptr);
  ConnectorOwner* const owner = owner_;
  StreamFd beside(context_.world, channel_->release());
  const std::vector<Waiting> waiting = finish();
  owner->on_engine(link);
  link->establish(std::move(beside), nullptr, [owner, link] { owner->on_link_ended(link); });
  BE_FAILPOINT("transport.connector.established");
  for (const Waiting& each : waiting) link->open_socket(each.handler, each.deadline);
}

void Connector::drop_link(const Status& why) {
  if (EngineLink* link = std::exchange(link_, nullptr)) link->abandon(why);
}

}  // namespace be
