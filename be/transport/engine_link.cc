#include "be/transport/engine_link.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "be/base/log.h"
#include "be/transport/connector.h"

namespace be {
namespace {

// When the peer ends its connection, what it sent before may still be in the queue.
constexpr int kFarewellBatches = 1024;

}  // namespace

Result<EngineLink*> EngineLink::create(const TransportContext& context, IoThreadImpl& thread,
                                       NodeDevice device, const Address& remote, Side side) {
  const EngineOptions& options = context.options.engine;
  BE_RETURN_IF_ERROR(options.check());
  BE_ASSIGN_OR_RETURN(DevicePort * port, thread.port_for(device, options));
  std::unique_ptr<EngineLink> link(new EngineLink(context, thread, *port, remote, side));
  Engine::Resources resources;
  resources.device = device.device;
  resources.pool = &context.pool;
  resources.device_index = device.index;
  resources.cq = port->cq();
  resources.thread_domain = port->thread_domain();
  resources.shared_receives = port->shared_receives();
  resources.engine_index = link->engine_index_;
  resources.peer = remote.to_string();
  resources.wake = [&thread, self = std::weak_ptr<EngineLink*>(link->self_)] {
    thread.post([&thread, self] {
      if (const auto alive = self.lock()) thread.schedule(*alive);
    });
  };
  BE_ASSIGN_OR_RETURN(link->engine_, Engine::create(resources, options, link.get()));
  if (port->shared_receives() != nullptr) {
    port->set_queue_pair(link->engine_index_, link->qp()->qp_num);
  }
  return thread.adopt(std::move(link));
}

EngineLink::EngineLink(const TransportContext& context, IoThreadImpl& thread, DevicePort& port,
                       const Address& remote, Side side)
    : context_(context),
      thread_(thread),
      port_(port),
      remote_(remote),
      side_(side),
      completions_(Engine::completions_needed(context.options.engine)),
      engine_index_(port.attach(this, completions_)),
      self_(std::make_shared<EngineLink*>(this)) {}

EngineLink::~EngineLink() {
  if (beside_) thread_.poller().remove(beside_->get());
  if (engine_ != nullptr && engine_->state() != Engine::State::kInit &&
      engine_->state() != Engine::State::kDead) {
    // The peer has not confirmed that it lets go of our memory: nobody may use it again.
    log_error("engine to {}: its memory is kept, the peer may still use it", remote_.to_string());
    static_cast<void>(engine_.release());
  }
  engine_.reset();
  port_.detach(engine_index_, completions_);
}

Result<EngineOffer> EngineLink::offer() const {
  EngineOffer offer;
  offer.kind = kind();
  offer.terms = engine_->local_terms();
  BE_ASSIGN_OR_RETURN(offer.endpoint, engine_->local_endpoint());
  return offer;
}

Status EngineLink::connect(const EngineOffer& remote, const ConnectToken& token,
                           std::function<void(const Status&)> report) {
  if (state_ == State::kBroken) return broken_;
  BE_RETURN_IF_ERROR(port_.device().device->reachable(remote.endpoint));
  peer_max_message_bytes_ = remote.terms.max_message_bytes;
  report_ = std::move(report);
  Status status =
      engine_->connect(remote.terms, remote.endpoint, token.data(), side_ == Side::kConnector);
  if (!status.ok()) report_ = nullptr;
  return status;
}

void EngineLink::on_connected(const Status& status) {
  if (disposed()) return;
  engine_->on_connected(status, thread_.now());  // a failure comes back by on_engine_failed
  thread_.schedule(this);
  port_.ticks_changed();
  if (status.ok() && report_) report_(ok_status());
}

void EngineLink::abandon(const Status& why) {
  report_ = nullptr;
  if (state_ == State::kEnding) return;
  state_ = State::kEnding;
  if (engine_->state() == Engine::State::kInit) {
    thread_.dispose(this);
  } else {
    engine_->fail(why);
    after_step();
  }
}

void EngineLink::establish(StreamFd beside, std::shared_ptr<Acceptance> acceptance,
                           UniqueFunction<void()> ended) {
  assert(state_ == State::kSettingUp);
  report_ = nullptr;
  state_ = State::kUsable;
  beside_.emplace(std::move(beside));
  acceptance_ = std::move(acceptance);
  ended_ = std::move(ended);
  if (Status status = thread_.poller().add(beside_->get(), this); !status.ok()) fail(status);
}

void EngineLink::on_ready(bool, bool) {
  uint8_t byte;
  const iovec iov = {&byte, 1};
  const IoResult result = context_.world.network().read(beside_->get(), &iov, 1);
  if (result.kind == IoResult::Kind::kWouldBlock) return;
  for (int i = 0; i < kFarewellBatches && port_.poll(); ++i) {
  }
  if (state_ != State::kUsable) return;
  switch (result.kind) {
    case IoResult::Kind::kOk:
      return fail_protocol("data on the connection beside the engine");
    case IoResult::Kind::kEnd:
      return fail(error(Code::kUnavailable, "{} has ended the connection", remote_.to_string()));
    default:
      return fail(error_from_errno(result.error_number,
                                   fmt::format("connection to {}", remote_.to_string())));
  }
}

void EngineLink::fail(const Status& why) {
  if (disposed()) return;
  engine_->fail(why);
  thread_.schedule(this);
}

void EngineLink::fail_protocol(const char* what) {
  fail(error(Code::kProtocol, "{} broke the protocol: {}", remote_.to_string(), what));
}

void EngineLink::on_engine_failed(const Status& status) {
  if (state_ == State::kUsable) {
    const bool usual = status.code() == Code::kUnavailable || status.code() == Code::kClosed;
    const std::string line = fmt::format("{} engine to {} has ended: {}", device_kind_name(kind()),
                                         remote_.to_string(), status.to_string());
    if (usual) {
      log_info("{}", line);
    } else {
      log_warn("{}", line);
    }
  }
  // Before connect() there is nobody to tell, but an owner who still has us.
  const bool owner_knows = state_ != State::kSettingUp || report_ != nullptr;
  state_ = owner_knows ? State::kEnding : State::kBroken;
  broken_ = status;
  if (beside_) {  // so that the peer hears of it at once
    thread_.poller().remove(beside_->get());
    beside_.reset();
  }
  port_.ticks_changed();
  thread_.schedule(this);
  if (ended_) std::exchange(ended_, nullptr)();
  if (report_) std::exchange(report_, nullptr)(status);
  for (auto& slot : sockets_) {
    if (slot == nullptr) continue;
    slot->on_engine_failed(status);
    dead_sockets_.push_back(std::move(slot));
  }
  sockets_.clear();
  acceptance_.reset();
}

void EngineLink::on_quiesced(QuiesceToken token) {
  engine_->on_quiesced(token);
  after_step();
}

void EngineLink::tick(Time now) {
  if (disposed()) return;
  engine_->tick(now);
  after_step();
}

bool EngineLink::progress() {
  dead_sockets_.clear();
  const bool did = engine_->progress(thread_.now());
  after_step();
  return did;
}

void EngineLink::after_step() {
  if (engine_->state() == Engine::State::kDead) {
    if (state_ != State::kBroken) thread_.dispose(this);
  } else if (engine_->wants_progress()) {
    thread_.schedule(this);
  }
}

void EngineLink::shut_down(const Status& why) {
  if (state_ == State::kEnding) return;  // on its way already
  if (state_ == State::kBroken) return abandon(why);
  if (engine_->state() == Engine::State::kInit) {
    state_ = State::kEnding;
    thread_.dispose(this);
  } else {
    fail(why);
  }
}

// --- Sockets ---

void EngineLink::open_socket(SocketHandler* handler, Time deadline) {
  Status why;
  if (state_ != State::kUsable) {
    why = Status(Code::kUnavailable, "the engine has just ended");
  } else if (free_slots_.empty() && sockets_.size() == kMaxSockets) {
    why = error(Code::kResourceExhausted, "{} sockets are open already", sockets_.size());
  }
  if (!why.ok()) {
    return report_never_opened(thread_, remote_, handler,
                               why.with_context(fmt::format("connect to {}", remote_.to_string())));
  }
  uint32_t slot = static_cast<uint32_t>(sockets_.size());
  if (free_slots_.empty()) {
    sockets_.emplace_back();
  } else {
    slot = free_slots_.back();
    free_slots_.pop_back();
  }
  sockets_[slot] = std::make_unique<EngineSocket>(*this, 2 * slot + 1);
  sockets_[slot]->open(handler, deadline);
}

Status EngineLink::send(SocketId socket, FrameKind kind, Message& message, uint64_t cookie) {
  // A direction of a socket carries one class (blueprint 6): requests go to the listener.
  const MessageClass klass =
      side_ == Side::kConnector ? MessageClass::kRequest : MessageClass::kReply;
  Status status = engine_->send(socket, kind, klass, message, cookie);
  if (status.ok()) thread_.schedule(this);
  return status;
}

void EngineLink::release_socket(SocketId id) {
  const uint32_t slot = id >> 1;
  const EngineSocket::Reopening reopening = sockets_[slot]->reopening();
  dead_sockets_.push_back(std::move(sockets_[slot]));
  thread_.schedule(this);
  if (side_ == Side::kConnector) {
    free_slots_.push_back(slot);
  } else if (reopening != EngineSocket::Reopening::kNo) {
    accept_socket(id, reopening == EngineSocket::Reopening::kAsked);
  }
}

void EngineLink::on_frame(FrameKind kind, SocketId id, Buffer payload) {
  if (EngineSocket* socket = find(id); socket != nullptr && (id & 1) != 0) {
    if (!socket->on_frame(kind, std::move(payload))) {
      fail_protocol("a frame that its socket does not expect");
    }
    return;
  }
  if (kind != FrameKind::kSocketOpen || side_ != Side::kListener || (id & 1) == 0 ||
      (id >> 1) >= kMaxSockets) {
    return fail_protocol("a frame for a socket that is not open");
  }
  // Whoever listens there now has engines of its own: the peer shall connect anew.
  const bool in_use = std::any_of(sockets_.begin(), sockets_.end(),
                                  [](const auto& socket) { return socket != nullptr; });
  if (!in_use && acceptance_ != nullptr && acceptance_->stopped()) {
    return fail(error(Code::kUnavailable, "{} wants a socket, but nobody listens any more",
                      remote_.to_string()));
  }
  accept_socket(id, true);
}

void EngineLink::accept_socket(SocketId id, bool wanted) {
  const size_t slot = id >> 1;
  if (slot >= sockets_.size()) sockets_.resize(slot + 1);
  sockets_[slot] = std::make_unique<EngineSocket>(*this, id);
  EngineSocket* socket = sockets_[slot].get();
  SocketHandler* handler =
      wanted && acceptance_ != nullptr ? acceptance_->decide(*socket) : nullptr;
  socket->decided(handler);
}

void EngineLink::on_sent(SocketId id, uint64_t cookie, const Status& status) {
  if (EngineSocket* socket = find(id)) socket->on_sent(cookie, status);
}

}  // namespace be
