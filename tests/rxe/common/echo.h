// An echo over RPC on nodes that take RDMA hardware, and nothing else unless told so.
//
// Replies are the request's body, its bytes changed, so that neither end can return its own.
// Failures are GoogleTest's; what cannot go on throws.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "be/base/stream_network.h"
#include "be/rpc/channel.h"
#include "be/rpc/server.h"
#include "be/transport/node.h"

namespace be::rxe {

// For a guest that may stand still for a while; where packets are lost on purpose, less is enough.
struct Waiting {
  Nanoseconds ack_timeout = std::chrono::milliseconds(250);
  Nanoseconds connect_timeout = std::chrono::seconds(30);
};

NodeOptions node_options(TransportChoice transport, const Waiting& waiting = {});

class EchoServer {
 public:
  static std::unique_ptr<EchoServer> start(const std::string& address,
                                           TransportChoice transport = TransportChoice::kRdma,
                                           uint32_t shared_receives = 0);

  const Address& address() const { return server_->address(); }
  void wait_until_told_to_end();  // EchoClient::end_server

 private:
  explicit EchoServer(const NodeOptions& options);

  std::unique_ptr<Node> node_;
  std::unique_ptr<rpc::Server> server_;
  std::atomic<bool> ended_{false};
};

class EchoClient {
 public:
  explicit EchoClient(const Address& server, TransportChoice transport = TransportChoice::kRdma,
                      const Waiting& waiting = {});

  void wait_for_server();  // that it listens
  void expect_echo(size_t bytes) { expect_echoes(1, bytes); }
  void expect_echoes(int count, size_t bytes);  // all outstanding at once
  Status status_of_call(Nanoseconds timeout);
  void end_server();
  const Address& server() const { return channel_->server(); }
  std::optional<TransportKind> transport() const { return channel_->transport(); }

 private:
  Status status_of_call(rpc::MethodId method, Nanoseconds timeout);

  std::unique_ptr<Node> node_;
  std::unique_ptr<rpc::Channel> channel_;
};

}  // namespace be::rxe
