#include "tests/rxe/common/echo.h"

#include <gtest/gtest.h>

#include <future>
#include <stdexcept>
#include <utility>
#include <vector>

namespace be::rxe {
namespace {

using namespace std::chrono_literals;

// An emulated machine, often with others' work beside it, is slow.
constexpr Nanoseconds kPatience = 30s;
const rpc::MethodId kEcho = rpc::method_id("rxe.Echo");
const rpc::MethodId kEnd = rpc::method_id("rxe.End");

template <typename T>
T need(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.status().to_string());
  return std::move(result).value();
}

void need(const Status& status) {
  if (!status.ok()) throw std::runtime_error(status.to_string());
}

std::unique_ptr<Node> make_node(TransportChoice transport, const Waiting& waiting) {
  return need(Node::create(kernel_world(), node_options(transport, waiting)));
}

uint8_t pattern(size_t seed, size_t i) { return static_cast<uint8_t>(seed + i * 7 + i / 251); }

}  // namespace

NodeOptions node_options(TransportChoice transport, const Waiting& waiting) {
  NodeOptions options;
  options.transport = transport;
  options.engine.keepalive_timeout = kPatience;
  options.hardware.ack_timeout = waiting.ack_timeout;
  options.handshake_timeout = kPatience;
  options.memory.cap_bytes = size_t{256} << 20;
  return options;
}

EchoServer::EchoServer(const NodeOptions& options)
    : node_(need(Node::create(kernel_world(), options))),
      server_(need(rpc::Server::create(*node_, {}))) {}

std::unique_ptr<EchoServer> EchoServer::start(const std::string& address, TransportChoice transport,
                                              uint32_t shared_receives) {
  NodeOptions options = node_options(transport);
  options.engine.shared_receives = shared_receives;
  std::unique_ptr<EchoServer> echo(new EchoServer(options));
  need(echo->server_->add_method("rxe.Echo", rpc::RunOn::kWorkers, [](rpc::ServerCall call) {
    Buffer body = std::move(call.body());
    for (size_t i = 0; i < body.size(); ++i) body.data()[i] ^= 0xff;
    call.reply({std::move(body), {}});
  }));
  need(echo->server_->add_method("rxe.End", rpc::RunOn::kWorkers,
                                 [raw = echo.get()](rpc::ServerCall call) {
                                   call.reply({});
                                   raw->ended_ = true;
                                   raw->ended_.notify_all();
                                 }));
  need(echo->server_->listen(need(Address::parse(address))));
  return echo;
}

void EchoServer::wait_until_told_to_end() { ended_.wait(false); }

EchoClient::EchoClient(const Address& server, TransportChoice transport, const Waiting& waiting)
    : node_(make_node(transport, waiting)),
      channel_(rpc::Channel::create(
          *node_, server,
          {.connect_timeout = waiting.connect_timeout, .request_timeout = kPatience})) {}

void EchoClient::wait_for_server() {
  const Time end = node_->world().now() + kPatience;
  for (;;) {
    const auto answer = channel_->call_and_wait(kEcho, {}, {});
    if (answer.ok()) return;
    if (node_->world().now() > end) throw std::runtime_error(answer.status().to_string());
  }
}

void EchoClient::expect_echoes(int count, size_t bytes) {
  std::vector<std::future<Result<rpc::Payload>>> answers;
  for (int call = 0; call < count; ++call) {
    Buffer body = need(node_->pool().allocate_buffer(bytes));
    for (size_t i = 0; i < bytes; ++i) body.data()[i] = pattern(call, i);
    auto answered = std::make_shared<std::promise<Result<rpc::Payload>>>();
    answers.push_back(answered->get_future());
    channel_->call(kEcho, {std::move(body), {}}, {}, [answered](Result<rpc::Payload> answer) {
      answered->set_value(std::move(answer));
    });
  }
  for (int call = 0; call < count; ++call) {
    const Result<rpc::Payload> answer = answers[call].get();
    ASSERT_TRUE(answer.ok()) << answer.status().to_string() << ", " << bytes << " bytes";
    ASSERT_EQ(answer->body.size(), bytes);
    size_t wrong = 0;
    for (size_t i = 0; i < bytes; ++i) {
      wrong += answer->body.data()[i] != (pattern(call, i) ^ 0xff);
    }
    EXPECT_EQ(wrong, 0u) << "of " << bytes << " bytes";
  }
}

Status EchoClient::status_of_call(Nanoseconds timeout) { return status_of_call(kEcho, timeout); }

// Told, the server may be gone before its answer has arrived.
void EchoClient::end_server() { status_of_call(kEnd, kPatience).ignore(); }

Status EchoClient::status_of_call(rpc::MethodId method, Nanoseconds timeout) {
  return channel_->call_and_wait(method, {}, {.timeout = timeout}).status();
}

}  // namespace be::rxe
