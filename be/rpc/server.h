// Server: receives calls and gives each exactly one answer.
//
// Handlers run inline on the I/O thread (a microsecond counts, never slow) or on the server's
// worker pool, declared per method: user services default to the pool, so that a slow handler
// starves nobody's keepalive.
//
// The request's deadline travels along: a call whose deadline has passed when its turn comes is
// answered with kDeadlineExceeded without running the handler. At most `max_in_progress` calls
// are inside at once; more are refused with kResourceExhausted at once.
//
// Malformed rpc frames end the socket they came on, with a logged, named error.
//
// In a forked child (base/fork.h) it is dead: listen() fails, answers go nowhere, destruction waits
// for nobody.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "be/rpc/message.h"
#include "be/transport/node.h"

namespace be::rpc {

enum class RunOn : uint8_t { kWorkers, kIoThread };

struct ServerOptions {
  int worker_threads = 1;
  uint32_t max_in_progress = 4096;
};

// One call inside the server: move-only, answered once, from any thread. Destroyed without an
// answer it is answered with kInternal, so a caller never waits for a forgotten call.
//
// May outlive the server and its connection: then an answer goes nowhere.
class ServerCall {
 public:
  ServerCall(ServerCall&&) noexcept = default;
  ServerCall& operator=(ServerCall&& other) noexcept;
  ~ServerCall();

  Buffer& body();
  Buffer& attachment();
  Time deadline() const;
  bool cancelled() const;  // the caller withdrew it, or is gone: an answer is of no use

  // `hook` runs exactly once: when the call is cancelled (on its I/O thread; at once if it is
  // already), else when it has been answered. At most once per call.
  void on_cancel(UniqueFunction<void()> hook);

  // The call is over: nothing of it may be used afterwards.
  void reply(Payload response);
  void fail(const Status& status);

 private:
  friend class ServerConnection;
  struct State;   // server_connection.h
  struct LetGo {  // of a call whose I/O thread has stopped
    void operator()(State* state) const;
  };
  using Handle = std::unique_ptr<State, LetGo>;
  explicit ServerCall(Handle state) : state_(std::move(state)) {}

  Handle state_;
};

using Handler = std::function<void(ServerCall)>;

class Server {
 public:
  // `node` must outlive the server.
  static Result<std::unique_ptr<Server>> create(Node& node, const ServerOptions& options);
  virtual ~Server() = default;  // stops listening, closes its sockets, waits for its handlers

  // Before listen(). Two methods with one hash: kAlreadyExists.
  virtual Status add_method(std::string_view full_name, RunOn run_on, Handler handler) = 0;

  virtual Status listen(const Address& address) = 0;
  virtual const Address& address() const = 0;  // after listen: with the port that was given
  virtual Node& node() = 0;
};

}  // namespace be::rpc
