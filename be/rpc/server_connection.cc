#include "be/rpc/server_connection.h"

#include <utility>

#include "be/base/log.h"

namespace be::rpc {
namespace {

// on_sent tells what became of a response, and that a full queue has room again. Not 0: a client
// that has chosen 0 for a call hears nothing of a response that its end has refused.
uint64_t cookie_of(uint64_t call_id) { return call_id != 0 ? call_id : UINT64_MAX; }

}  // namespace

ServerCall::State::~State() { run_cancel_hook(); }

void ServerCall::State::run_cancel_hook() {
  if (cancel_hook.load(std::memory_order_relaxed) == nullptr) return;
  const std::unique_ptr<UniqueFunction<void()>> hook(cancel_hook.exchange(nullptr));
  if (hook != nullptr) (*hook)();
}

ServerConnection::ServerConnection(std::shared_ptr<ServerCore> core, ServerCore::Shard& shard,
                                   Socket& socket)
    : core_(std::move(core)), shard_(shard), socket_(&socket) {}

SocketHandler* ServerConnection::accept(const std::shared_ptr<ServerCore>& core, Socket& socket) {
  ServerCore::Shard* shard = core->shard_of(socket.thread());
  if (shard == nullptr || core->shutting_down) return nullptr;
  const auto connection = std::make_shared<ServerConnection>(core, *shard, socket);
  connection->self_ = connection;
  shard->connections.push_back(connection.get());
  return connection.get();
}

void ServerConnection::on_open(Socket&) {}  // accepted sockets are open already

void ServerConnection::on_message(Socket&, Buffer message) {
  if (socket_ == nullptr) return;
  FrameHeader header;
  if (const Status status = parse_frame(message, header); !status.ok()) return break_off(status);
  switch (header.type) {
    case FrameType::kRequest:
      return on_request(header, std::move(message));
    case FrameType::kCancel:
      return on_cancel(header.call_id);
    case FrameType::kResponse:
      return break_off(error(Code::kProtocol, "rpc frame: a client sent a response"));
  }
}

void ServerConnection::break_off(const Status& why) {
  log_error("{}, from {}: closing the connection", why.to_string(), socket_->remote().to_string());
  close();
}

void ServerConnection::on_request(const FrameHeader& header, Buffer&& message) {
  const bool full = core_->in_progress() >= core_->options.max_in_progress;
  ServerCall::Handle call = begin(header, std::move(message));
  if (full) {
    call->failure = error(Code::kResourceExhausted, "the server has {} calls in progress",
                          core_->options.max_in_progress);
    return finish(std::move(call));
  }
  const ServerMethod* method = core_->find(header.method);
  if (method == nullptr) {
    call->failure =
        error(Code::kNotFound, "the server has no method with hash {:#010x}", header.method);
    return finish(std::move(call));
  }
  if (method->run_on == RunOn::kIoThread) {
    return run(*method, ServerCall(std::move(call)), shard_.thread->now());
  }
  core_->workers->submit(
      [method, server_call = ServerCall(std::move(call)), &world = core_->node.world()]() mutable {
        run(*method, std::move(server_call), world.now());
      });
}

// The handler's turn has come.
void ServerConnection::run(const ServerMethod& method, ServerCall call, Time now) {
  if (call.state_->connection->core_->shutting_down.load(std::memory_order_relaxed)) {
    return call.fail(error(Code::kUnavailable, "the server is shutting down"));
  }
  if (call.cancelled()) {
    return call.fail(error(Code::kCancelled, "withdrawn before {} ran", method.name));
  }
  if (now >= call.deadline()) {
    return call.fail(
        error(Code::kDeadlineExceeded, "the deadline passed before {} ran", method.name));
  }
  method.handler(std::move(call));
}

ServerCall::Handle ServerConnection::begin(const FrameHeader& header, Buffer&& message) {
  if (idle_.empty()) {
    states_.push_back(std::make_unique<ServerCall::State>());
    states_.back()->connection = shared_from_this();
    idle_.emplace_back(states_.back().get());
  }
  ServerCall::Handle call = std::move(idle_.back());
  idle_.pop_back();
  call->call_id = header.call_id;
  call->deadline = shard_.thread->now() + std::chrono::microseconds(header.timeout_us);
  call->request = split_frame(header, std::move(message));
  call->previous = nullptr;
  call->next = in_progress_;
  if (in_progress_ != nullptr) in_progress_->previous = call.get();
  in_progress_ = call.get();
  shard_.count(+1);
  return call;
}

void ServerConnection::answer(ServerCall::Handle&& call) {
  ServerConnection& connection = *call->connection;
  IoThread& thread = *connection.shard_.thread;
  if (thread.on_this_thread()) return connection.finish(std::move(call));
  // Refused when the thread has stopped, with the whole node: nobody is left to tell.
  thread.post([call = std::move(call)]() mutable {
    ServerConnection& home = *call->connection;
    home.finish(std::move(call));
  });
}

void ServerConnection::finish(ServerCall::Handle&& call) {
  if (socket_ == nullptr || (pending_.empty() && send(*call))) return retire(std::move(call));
  pending_.push_back(std::move(call));
  // Refusals are answers too: a peer that asks on and on but never reads must not pile them up.
  if (pending_.size() > 2 * size_t{core_->options.max_in_progress}) {
    break_off(error(Code::kResourceExhausted, "{} unread responses", pending_.size()));
  }
}

// False: the socket is full, and the response is kept in the call.
bool ServerConnection::send(ServerCall::State& call) {
  Message frame;
  if (call.failure.ok()) {
    FrameHeader header;
    header.type = FrameType::kResponse;
    header.call_id = call.call_id;
    make_frame(frame, header, call.response);
  } else {
    make_error_frame(frame, call.call_id, call.failure, core_->node.pool(), core_->no_memory_text);
  }
  const Status status = socket_->send(frame, cookie_of(call.call_id));
  if (status.ok() || status.code() == Code::kClosed) return true;
  if (status.code() == Code::kResourceExhausted) {
    if (call.failure.ok()) take_back(frame, call.response);
    return false;
  }
  if (!call.failure.ok()) return true;
  call.failure =
      error(Code::kResourceExhausted, "the response cannot be sent: {}", status.message());
  return send(call);
}

// May destroy the connection: it was closed, and this was its last call.
void ServerConnection::retire(ServerCall::Handle call) {
  if (call->previous != nullptr) {
    call->previous->next = call->next;
  } else {
    in_progress_ = call->next;
  }
  if (call->next != nullptr) call->next->previous = call->previous;
  shard_.count(-1);
  call->run_cancel_hook();
  call->cancelled.store(false, std::memory_order_relaxed);
  call->request.body.reset();
  call->request.attachment.reset();
  call->response.body.reset();
  call->response.attachment.reset();
  call->failure = Status();
  if (self_ != nullptr) idle_.push_back(std::move(call));
}

void ServerConnection::on_cancel(uint64_t call_id) {
  for (ServerCall::State* call = in_progress_; call != nullptr; call = call->next) {
    if (call->call_id != call_id) continue;
    call->cancelled = true;
    return call->run_cancel_hook();
  }
}

void ServerConnection::cancel_all() {
  std::vector<std::unique_ptr<UniqueFunction<void()>>> hooks;  // they may answer calls
  for (ServerCall::State* call = in_progress_; call != nullptr; call = call->next) {
    call->cancelled = true;
    hooks.emplace_back(call->cancel_hook.exchange(nullptr));
  }
  for (const auto& hook : hooks) {
    if (hook != nullptr) (*hook)();
  }
}

void ServerConnection::close() {
  if (socket_ == nullptr) return;
  const auto alive = self_;
  Socket& socket = *std::exchange(socket_, nullptr);
  cancel_all();
  socket.close();
}

void ServerConnection::on_sent(Socket&, uint64_t cookie, const Status& status) {
  if (status.code() == Code::kResourceExhausted && socket_ != nullptr) {
    // The client had no memory for the response, but may have some for the reason.
    Message frame;
    make_error_frame(frame, cookie, status.with_context("the response"), core_->node.pool(),
                     core_->no_memory_text);
    socket_->send(frame, 0).ignore();
  }
  while (socket_ != nullptr && !pending_.empty() && send(*pending_.front())) {
    retire(pending_.pop_front());
  }
}

void ServerConnection::on_closed(Socket&, const Status& status) {
  log_debug("rpc connection closed: {}", status.to_string());
  const auto alive = std::move(self_);
  socket_ = nullptr;
  std::erase(shard_.connections, this);
  cancel_all();
  while (!pending_.empty()) retire(pending_.pop_front());
  idle_.clear();
}

}  // namespace be::rpc
