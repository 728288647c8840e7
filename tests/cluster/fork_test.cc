// fork() of a process that serves and calls: in the child everything of ours is dead, by name and
// without waiting; the parent's traffic, both ways, over softnic and TCP, does not notice.
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "be/rpc/channel.h"
#include "be/rpc/server.h"
#include "tests/unit/base/forked_child.h"

namespace be::rpc {
namespace {

const MethodId kEcho = method_id("echo");
const MethodId kEchoOnWorker = method_id("echo on a worker");
const CallOptions kPatient{.timeout = 20s};
// Inline, eager, granted, granted in many fragments.
constexpr size_t kSizes[] = {32, 3000, 40000, 1 << 20};

std::unique_ptr<Node> make_node(bool driven = false) {
  NodeOptions options;
  options.driven = driven;
  options.memory.cap_bytes = 128 << 20;
  return Node::create(kernel_world(), options).value();
}

std::unique_ptr<Server> make_server(Node& node) {
  auto server = Server::create(node, {}).value();
  const Handler echo = [](ServerCall call) {
    Payload same{std::move(call.body()), std::move(call.attachment())};
    call.reply(std::move(same));
  };
  EXPECT_TRUE(server->add_method("echo", RunOn::kIoThread, echo).ok());
  EXPECT_TRUE(server->add_method("echo on a worker", RunOn::kWorkers, echo).ok());
  EXPECT_TRUE(server->listen(Address::parse("127.0.0.1:0").value()).ok());
  return server;
}

std::unique_ptr<Channel> make_channel(Node& node, const Address& server,
                                      TransportChoice transport) {
  ChannelOptions options;
  options.connect_timeout = 10s;
  options.transport = transport;
  return Channel::create(node, server, options);
}

uint8_t byte_at(size_t place, uint32_t seed) { return static_cast<uint8_t>(place * 7 + seed); }

// An echo whose every byte is looked at.
Status round_trip(Channel& channel, MethodId method, size_t size, uint32_t seed) {
  BE_ASSIGN_OR_RETURN(Buffer body, channel.node().pool().allocate_buffer(size));
  for (size_t i = 0; i < size; ++i) body.data()[i] = byte_at(i, seed);
  BE_ASSIGN_OR_RETURN(const Payload answer,
                      channel.call_and_wait(method, {std::move(body), {}}, kPatient));
  if (answer.body.size() != size) return error(Code::kInternal, "{} bytes", answer.body.size());
  for (size_t i = 0; i < size; ++i) {
    if (answer.body.data()[i] != byte_at(i, seed)) return error(Code::kInternal, "byte {}", i);
  }
  return {};
}

// Calls a server in all sizes until it is stopped.
class Traffic {
 public:
  Traffic(Node& node, const Address& server, TransportChoice transport)
      : channel_(make_channel(node, server, transport)), thread_([this] { run(); }) {}
  void stop() {
    stop_ = true;
    thread_.join();
  }
  Channel& channel() { return *channel_; }
  uint32_t calls() const { return calls_; }
  const Status& failure() const { return failure_; }

 private:
  void run() {
    while (!stop_ && failure_.ok()) {
      failure_ = round_trip(*channel_, calls_ % 3 == 0 ? kEchoOnWorker : kEcho, kSizes[calls_ % 4],
                            calls_);
      ++calls_;
    }
  }

  std::unique_ptr<Channel> channel_;
  std::atomic<bool> stop_{false};
  std::atomic<uint32_t> calls_{0};
  Status failure_;
  std::thread thread_;
};

// The other process: serves, and calls the server that it is told of, if any, until end().
class Peer {
 public:
  Peer() {
    int sides[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sides), 0);
    side_ = sides[0];
    pid_ = fork();
    if (pid_ == 0) {
      in_forked_child = true;
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::close(sides[0]);
      _exit(serve_and_call(sides[1]));
    }
    ::close(sides[1]);
    address_ = *hear(side_);
  }
  ~Peer() { ::close(side_); }
  const Address& address() const { return address_; }
  void call(const Address& server) { say(side_, server); }
  void end() {
    ::shutdown(side_, SHUT_WR);
    expect_good_end(pid_);
  }

 private:
  static void say(int side, const Address& address) {
    char text[64] = {};
    std::strncpy(text, address.to_string().c_str(), sizeof(text) - 1);
    EXPECT_EQ(::send(side, text, sizeof(text), 0), ssize_t{sizeof(text)});
  }
  static std::optional<Address> hear(int side) {  // nothing: the other end has shut down
    char text[64] = {};
    if (::recv(side, text, sizeof(text), MSG_WAITALL) != ssize_t{sizeof(text)}) return {};
    return Address::parse(text).value();
  }

  static int serve_and_call(int side) {
    const auto node = make_node();
    const auto server = make_server(*node);
    say(side, server->address());
    const std::optional<Address> whom = hear(side);
    if (!whom) return 0;
    Traffic traffic(*node, *whom, TransportChoice::kSoftnic);
    hear(side);
    traffic.stop();
    if (!traffic.failure().ok()) {
      std::fprintf(stderr, "the peer: %s\n", traffic.failure().to_string().c_str());
    }
    return traffic.failure().ok() && traffic.calls() > 0 ? 0 : 1;
  }

  int side_ = -1;
  pid_t pid_ = 0;
  Address address_;
};

class HearsOfTheEnd final : public SocketHandler {
 public:
  void on_open(Socket&) override { _exit(1); }
  void on_message(Socket&, Buffer) override { _exit(1); }
  void on_sent(Socket&, uint64_t, const Status&) override { _exit(1); }
  void on_closed(Socket&, const Status& status) override { heard = status; }
  Status heard;
};

bool names_fork(const Status& status) {
  return status.code() == Code::kClosed && status.message().find("fork()") != std::string::npos;
}

// Everything that a child may try with what it has inherited.
void every_call_is_a_named_error(Node& node, Server& server, Channel& channel) {
  EXPECT_IN_CHILD(names_fork(node.pool().allocate_buffer(100).status()));
  EXPECT_IN_CHILD(names_fork(node.listen(Address::parse("127.0.0.1:0").value(), {}).status()));
  HearsOfTheEnd handler;
  node.connect(channel.server(), {}, &handler);
  EXPECT_IN_CHILD(names_fork(handler.heard));
  EXPECT_IN_CHILD(!node.thread(0).post([] { _exit(1); }));

  EXPECT_IN_CHILD(names_fork(channel.call_and_wait(kEcho, {}, {}).status()));
  Status heard;
  EXPECT_IN_CHILD(
      channel.call(kEcho, {}, {}, [&](Result<Payload> answer) { heard = answer.status(); }) == 0);
  EXPECT_IN_CHILD(names_fork(heard));
  channel.cancel(1);
  EXPECT_IN_CHILD(names_fork(server.listen(Address::parse("127.0.0.1:0").value())));
}

TEST(Fork, AHundredForksDisturbNoTrafficAndEveryChildIsDeadAndEnds) {
  Peer peer;
  auto node = make_node();
  auto server = make_server(*node);
  peer.call(server->address());
  Traffic softnic(*node, peer.address(), TransportChoice::kSoftnic);
  Traffic tcp(*node, peer.address(), TransportChoice::kTcp);
  Buffer kept = node->pool().allocate_buffer(40000).value();
  std::memset(kept.data(), 'k', kept.size());
  while (softnic.calls() < 5 || tcp.calls() < 5) std::this_thread::yield();

  for (int i = 0; i < 100; ++i) {
    const uint32_t before = softnic.calls() + tcp.calls();
    run_in_child([&] {
      EXPECT_IN_CHILD(kept.data()[0] == 'k' && kept.data()[kept.size() - 1] == 'k');
      every_call_is_a_named_error(*node, *server, softnic.channel());
      every_call_is_a_named_error(*node, *server, tcp.channel());
      if (i % 2 == 0) {
        kept.reset();
        server.reset();
        node.reset();
      } else {  // exit() destroys them
        static std::unique_ptr<Node> last = std::move(node);
        static std::unique_ptr<Server> first = std::move(server);
      }
      if (i % 10 == 0) {  // a new life
        const auto own = make_node();
        const auto channel = make_channel(*own, peer.address(), TransportChoice::kAuto);
        EXPECT_IN_CHILD(round_trip(*channel, kEcho, 40000, 1).ok());
      }
    });
    ASSERT_FALSE(HasFailure()) << "fork " << i;
    for (int n = 0; n < 2000 && softnic.calls() + tcp.calls() == before; ++n) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    ASSERT_GT(softnic.calls() + tcp.calls(), before) << "the traffic goes on";
  }
  softnic.stop();
  tcp.stop();
  EXPECT_TRUE(softnic.failure().ok()) << softnic.failure().to_string();
  EXPECT_TRUE(tcp.failure().ok()) << tcp.failure().to_string();
  EXPECT_EQ(kept.data()[20000], 'k');
  peer.end();
}

// The thread that forks is the one that drives the node: in the child it finds itself "on" it.
TEST(Fork, TheDriverOfANodeGetsErrorsInTheChild) {
  Peer peer;
  auto node = make_node(/*driven=*/true);
  auto channel = make_channel(*node, peer.address(), TransportChoice::kSoftnic);
  auto over_tcp = make_channel(*node, peer.address(), TransportChoice::kTcp);
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(round_trip(*channel, kEcho, kSizes[i % 4], 2).ok());
    ASSERT_TRUE(round_trip(*over_tcp, kEcho, kSizes[i % 4], 2).ok());
    // Under way while we fork: its answer, or error, comes here and not in the child.
    int answers = 0;
    Buffer body = node->pool().allocate_buffer(kSizes[i % 4]).value();
    channel->call(kEcho, {std::move(body), {}}, kPatient, [&](Result<Payload> answer) {
      EXPECT_TRUE(answer.ok());
      ++answers;
    });
    node->thread(0).poll();
    const int before = answers;  // a quick server may have answered already
    run_in_child([&] {
      for (Channel* each : {channel.get(), over_tcp.get()}) {
        EXPECT_IN_CHILD(names_fork(each->call_and_wait(kEcho, {}, {}).status()));
      }
      EXPECT_IN_CHILD(!node->thread(0).poll());
      EXPECT_IN_CHILD(!node->thread(0).run_until([] { return false; }, kNever));
      if (i % 2 == 0) {
        channel.reset();
        over_tcp.reset();
        node.reset();
      }
      EXPECT_IN_CHILD(answers == before);
    });
    ASSERT_TRUE(node->thread(0).run_until([&] { return answers == 1; }, node->world().now() + 20s));
  }
  channel.reset();
  over_tcp.reset();
  node.reset();
  peer.end();
}

}  // namespace
}  // namespace be::rpc
