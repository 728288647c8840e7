// ServerConnection: one accepted socket of a Server and the calls that came on it.
//
//   on_message -> parse -> ServerCall::State -> handler, here or on a worker
//                                                   | reply, fail or destruction, any thread
//   socket <- send <- [pending, if the socket is full] <- answer() on the I/O thread
//
// A call is in progress from its arrival until the transport has taken its response, so
// max_in_progress bounds the waiting responses too. The connection owns the states of its calls
// and uses them again; the ServerCall holds the handle of one, and the state keeps the
// connection alive. So a call that a worker or a user still has stays usable after the socket,
// and the Server, are gone.
//
// Lives on the I/O thread of its socket; only the static members are for any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "be/base/ring_queue.h"
#include "be/rpc/frame.h"
#include "be/rpc/server_core.h"

namespace be::rpc {

// Fields are the handle holder's, but for those marked.
struct ServerCall::State {
  std::shared_ptr<ServerConnection> connection;
  uint64_t call_id = 0;  // constant while in progress
  Time deadline{};
  Payload request;
  Payload response;
  Status failure;                      // not ok: the answer, instead of `response`
  std::atomic<bool> cancelled{false};  // set by the I/O thread
  std::atomic<UniqueFunction<void()>*> cancel_hook{nullptr};  // run by whoever takes it
  State* previous = nullptr;  // in the connection's list of calls in progress: its alone
  State* next = nullptr;

  ~State();
  void run_cancel_hook();
};

class ServerConnection final : public SocketHandler,
                               public std::enable_shared_from_this<ServerConnection> {
 public:
  ServerConnection(std::shared_ptr<ServerCore> core, ServerCore::Shard& shard, Socket& socket);

  // Makes the connection of an accepted socket; it lives until on_closed and the end of its
  // calls. Null: the server is shutting down.
  static SocketHandler* accept(const std::shared_ptr<ServerCore>& core, Socket& socket);

  // Any thread: hands an answered call back to its connection.
  static void answer(ServerCall::Handle&& call);

  void close();  // no more requests are taken; calls in progress are cancelled

  void on_open(Socket& socket) override;
  void on_message(Socket& socket, Buffer message) override;
  void on_sent(Socket& socket, uint64_t cookie, const Status& status) override;
  void on_closed(Socket& socket, const Status& status) override;

 private:
  void break_off(const Status& why);
  void on_request(const FrameHeader& header, Buffer&& message);
  void on_cancel(uint64_t call_id);
  void cancel_all();
  ServerCall::Handle begin(const FrameHeader& header, Buffer&& message);
  void finish(ServerCall::Handle&& call);
  bool send(ServerCall::State& call);
  void retire(ServerCall::Handle call);
  static void run(const ServerMethod& method, ServerCall call, Time now);

  const std::shared_ptr<ServerCore> core_;
  ServerCore::Shard& shard_;
  Socket* socket_;                                          // null: closed, or closing
  std::shared_ptr<ServerConnection> self_;                  // until on_closed
  std::vector<std::unique_ptr<ServerCall::State>> states_;  // all there ever were at once
  std::vector<ServerCall::Handle> idle_;
  ServerCall::State* in_progress_ = nullptr;
  RingQueue<ServerCall::Handle> pending_;  // answered; the socket is full
};

}  // namespace be::rpc
