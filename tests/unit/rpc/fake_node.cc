#include "fake_node.h"

#include <algorithm>

namespace be::rpc {

Address fake_address(uint16_t port) {
  return Address::parse("127.0.0.1:" + std::to_string(port)).value();
}

struct FakeNode::FakeListener final : Listener {
  FakeListener(FakeNode& at, const Address& where, Acceptor how)
      : node(at), bound(where), acceptor(std::move(how)) {
    node.listeners_.push_back(this);
  }
  ~FakeListener() override { std::erase(node.listeners_, this); }
  const Address& address() const override { return bound; }

  FakeNode& node;
  Address bound;
  Acceptor acceptor;
};

Status FakeSocket::send(Message& message, uint64_t cookie) {
  if (ended_) return error(Code::kClosed, "socket is closed");
  if (message.bytes() > max_message_bytes()) return error(Code::kInvalidArgument, "too large");
  if (sent_cookies_.size() >= node_.queue_limit_) {
    return error(Code::kResourceExhausted, "queue is full");
  }
  Buffer flat = node_.pool().allocate_buffer(message.bytes()).value();
  uint8_t* out = flat.data();
  std::memcpy(out, message.header, message.header_bytes);
  out += message.header_bytes;
  for (size_t i = 0; i < message.count; ++i) {
    std::memcpy(out, message.parts[i].data(), message.parts[i].size());
    out += message.parts[i].size();
    message.parts[i].reset();
  }
  peer_->inbox_.push_back(std::move(flat));
  sent_cookies_.push_back(cookie);
  return {};
}

void FakeSocket::end_both(const Status& status) {
  if (!ended_) ended_ = status;
  if (!peer_->ended_) peer_->ended_ = status;
}

IoThread& FakeSocket::thread() const { return node_; }

FakeNode::FakeNode() {
  options_.driven = true;
  pool_ = RegisteredPool::create({.cap_bytes = 64 << 20}).value();
  poller_ = world_.make_poller().value();
}

FakeNode::~FakeNode() {
  hold_connects_ = hold_messages_ = false;
  run();
  for (const auto& socket : sockets_) socket->end_both(error(Code::kClosed, "the node ends"));
  run();
}

void FakeNode::connect(const Address& remote, const SocketOptions&, SocketHandler* handler) {
  ++connects_;
  connecting_.push_back({remote, handler});
}

Result<std::unique_ptr<Listener>> FakeNode::listen(const Address& address, Acceptor acceptor) {
  std::unique_ptr<Listener> listener =
      std::make_unique<FakeListener>(*this, address, std::move(acceptor));
  return listener;
}

bool FakeNode::decide_connects() {
  if (connecting_.empty() || hold_connects_) return false;
  const Connect connect = connecting_.front();
  connecting_.pop_front();
  const auto listener = std::find_if(listeners_.begin(), listeners_.end(),
                                     [&](auto* l) { return l->bound == connect.remote; });
  auto ours = std::make_unique<FakeSocket>(*this, connect.remote);
  auto theirs = std::make_unique<FakeSocket>(*this, fake_address(50000));
  ours->peer_ = theirs.get();
  theirs->peer_ = ours.get();
  ours->handler_ = connect.handler;
  if (listener != listeners_.end()) theirs->handler_ = (*listener)->acceptor(*theirs);
  FakeSocket& opened = *ours;
  const bool accepted = theirs->handler_ != nullptr;
  if (!accepted) theirs->told_ = true;
  sockets_.push_back(std::move(ours));
  sockets_.push_back(std::move(theirs));
  if (accepted) {
    connect.handler->on_open(opened);
  } else {
    opened.end_both(error(Code::kUnavailable, "ECONNREFUSED (Connection refused)"));
  }
  return true;
}

bool FakeNode::progress(FakeSocket& socket) {
  bool worked = false;
  while (!hold_messages_ && !socket.inbox_.empty() && !socket.told_) {
    Buffer message = std::move(socket.inbox_.front());
    socket.inbox_.pop_front();
    socket.handler_->on_message(socket, std::move(message));
    worked = true;
  }
  while (!hold_messages_ && !socket.sent_cookies_.empty() && !socket.told_) {
    const uint64_t cookie = socket.sent_cookies_.front();
    socket.sent_cookies_.pop_front();
    if (cookie != 0) socket.handler_->on_sent(socket, cookie, {});
    worked = true;
  }
  if (socket.ended_ && !socket.told_) {
    socket.told_ = true;
    socket.handler_->on_closed(socket, *socket.ended_);
    worked = true;
  }
  return worked;
}

bool FakeNode::poll() {
  const bool was_here = std::exchange(here_, true);
  bool worked = false;
  while (!tasks_.empty()) {
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    task();
    worked = true;
  }
  worked |= decide_connects();
  for (size_t i = 0; i < sockets_.size(); ++i) worked |= progress(*sockets_[i]);
  worked |= timers_.run_due(now()) > 0;
  here_ = was_here;
  return worked;
}

bool FakeNode::run_until(const std::function<bool()>& done, Time deadline, bool) {
  while (!done()) {
    if (now() >= deadline) return false;
    if (poll()) continue;
    if (workers().waiting() > 0) {
      workers().run();
    } else {
      const Time next = std::min(timers_.next(), deadline);
      if (next == kNever) return false;
      world_.clock_.advance(next - now());
    }
  }
  return true;
}

}  // namespace be::rpc
