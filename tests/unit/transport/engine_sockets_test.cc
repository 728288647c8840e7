// Engines under sockets: sharing, choice of transport, fallback, failure.
#include <poll.h>
#include <sys/socket.h>

#include <deque>
#include <string>
#include <vector>

#include "be/transport/handshake_frames.h"
#include "be/transport/io_thread_impl.h"
#include "transport_support.h"

namespace be::test {
namespace {

using ::testing::HasSubstr;

size_t engines_of(Node& node) {
  size_t count = 0;
  for (size_t i = 0; i < node.thread_count(); ++i) {
    count += static_cast<IoThreadImpl&>(node.thread(i)).engine_count();
  }
  return count;
}

// Two driven nodes that end in the right order. Shared: the receives of each are of one SRQ.
class Engines : public ::testing::TestWithParam<bool> {
 protected:
  void start(const NodeOptions& client_options, const NodeOptions& server_options) {
    client = make_node(options(client_options));
    server = make_node(options(server_options));
    host = std::make_unique<Host>(*server);
  }

  void TearDown() override {
    for (Recorder& handler : handlers) handler.messages.clear();
    for (auto& accepted : host->handlers) accepted->messages.clear();
    destroy(client, {server.get()});
    host->listener.reset();
    server.reset();
  }

  static NodeOptions options(const NodeOptions& made) {
    return GetParam() ? with_shared_receives(made, 1) : made;
  }

  bool until(const std::function<bool()>& done) {
    return drive({client.get(), server.get()}, done);
  }

  Recorder& connect(const SocketOptions& options = {}) {
    handlers.emplace_back();
    Recorder& handler = handlers.back();
    client->connect(host->address(), options, &handler);
    EXPECT_TRUE(until([&] { return handler.opened + handler.closed > 0; }));
    return handler;
  }

  std::unique_ptr<Node> client;
  std::unique_ptr<Node> server;
  std::unique_ptr<Host> host;
  std::deque<Recorder> handlers;
};

TEST_P(Engines, AreSharedByAllSocketsToOneAddress) {
  start(driven_options(TransportChoice::kAuto), driven_options(TransportChoice::kAuto));
  // Some at once, while the engine is being set up, and some later.
  for (int i = 0; i < 10; ++i) {
    handlers.emplace_back();
    client->connect(host->address(), {}, &handlers.back());
  }
  ASSERT_TRUE(until([&] {
    for (Recorder& handler : handlers) {
      if (handler.opened == 0) return false;
    }
    return true;
  }));
  for (int i = 0; i < 10; ++i) EXPECT_EQ(connect().opened, 1);
  EXPECT_EQ(engines_of(*client), 1u);
  EXPECT_EQ(engines_of(*server), 1u);
  EXPECT_EQ(host->handlers.size(), 20u);
  for (Recorder& handler : handlers) {
    EXPECT_EQ(handler.socket->transport(), TransportKind::kSoftnic);
  }
}

TEST_P(Engines, KeepTheirSocketsApart) {
  start(driven_options(TransportChoice::kAuto), driven_options(TransportChoice::kAuto));
  host->when_accepted = [](Socket&, Recorder& handler) { echo(handler); };
  for (int i = 0; i < 8; ++i) connect();
  for (int round = 0; round < 20; ++round) {
    for (size_t i = 0; i < handlers.size(); ++i) {
      // Large and small side by side.
      Message message(patterned(*client, i % 2 == 0 ? 50'000 : 50, static_cast<uint32_t>(i)));
      ASSERT_TRUE(handlers[i].socket->send(message, 0).ok());
    }
  }
  ASSERT_TRUE(until([&] {
    for (Recorder& handler : handlers) {
      if (handler.messages.size() < 20) return false;
    }
    return true;
  }));
  for (size_t i = 0; i < handlers.size(); ++i) {
    for (Buffer& message : handlers[i].messages) {
      EXPECT_TRUE(has_pattern(message, i % 2 == 0 ? 50'000 : 50, static_cast<uint32_t>(i)));
    }
  }
}

TEST_P(Engines, OutliveTheirSocketsAndUseTheirIdsAgain) {
  start(driven_options(TransportChoice::kAuto), driven_options(TransportChoice::kAuto));
  host->when_accepted = [&](Socket& socket, Recorder& handler) {
    echo(handler);
    // Every third is closed by the server, every third by both, the others by the client.
    if (host->handlers.size() % 3 == 0) {
      handler.when_message = [](Socket& from, Buffer) { from.close(); };
    } else if (host->handlers.size() % 3 == 1) {
      EXPECT_TRUE(send_text(socket, *server, "x").ok());
      socket.close();
    }
  };
  for (int i = 0; i < 300; ++i) {
    Recorder& handler = connect();
    ASSERT_EQ(handler.opened, 1) << handler.close_status.to_string();
    if (handler.socket != nullptr) send_text(*handler.socket, *client, "hello").ignore();
    if (handler.socket != nullptr && i % 3 != 2) handler.socket->close();
    ASSERT_TRUE(until([&] { return handler.closed == 1; }));
    EXPECT_EQ(handler.close_status.code(), Code::kClosed);
  }
  ASSERT_TRUE(until([&] {
    for (auto& handler : host->handlers) {
      if (handler->closed == 0) return false;
    }
    return true;
  }));
  EXPECT_EQ(engines_of(*client), 1u);
}

TEST_P(Engines, AnOpenThatIsTooLateIsClosedAgain) {
  start(driven_options(TransportChoice::kAuto), driven_options(TransportChoice::kAuto));
  connect();
  Recorder late;
  client->connect(host->address(), {.connect_timeout = 20ms, .transport = {}}, &late);
  // The server does not run meanwhile.
  ASSERT_TRUE(drive({client.get()}, [&] { return late.closed == 1; }));
  EXPECT_EQ(late.opened, 0);
  EXPECT_EQ(late.close_status.code(), Code::kUnavailable);
  EXPECT_THAT(late.close_status.message(), HasSubstr("did not answer in time"));
  ASSERT_TRUE(until([&] { return host->handlers.size() == 2 && host->accepted(1).closed == 1; }));
  EXPECT_EQ(connect().opened, 1);
}

TEST_P(Engines, AutoIsServedOverTcpWhereThePeerHasNoDevice) {
  start(driven_options(TransportChoice::kAuto), driven_options(TransportChoice::kTcp));
  for (int i = 0; i < 3; ++i) {
    Recorder& handler = connect();
    ASSERT_EQ(handler.opened, 1);
    EXPECT_EQ(handler.socket->transport(), TransportKind::kTcp);
  }
  EXPECT_EQ(engines_of(*client), 0u);
}

TEST_P(Engines, AutoIsServedOverTcpWhereAnEngineCannotBeSetUp) {
  NodeOptions poor = driven_options(TransportChoice::kAuto);
  poor.memory.block_bytes = 64 << 10;
  poor.memory.cap_bytes = 128 << 10;  // too little for an engine's receives
  start(driven_options(TransportChoice::kAuto), poor);
  for (int i = 0; i < 4; ++i) {
    handlers.emplace_back();
    client->connect(host->address(), {}, &handlers.back());
  }
  ASSERT_TRUE(until([&] {
    for (Recorder& handler : handlers) {
      if (handler.opened + handler.closed == 0) return false;
    }
    return true;
  }));
  for (Recorder& handler : handlers) {
    ASSERT_EQ(handler.opened, 1) << handler.close_status.to_string();
    EXPECT_EQ(handler.socket->transport(), TransportKind::kTcp);
    ASSERT_TRUE(send_text(*handler.socket, *client, "hello").ok());
  }
  ASSERT_TRUE(until([&] {
    for (auto& handler : host->handlers) {
      if (handler->messages.empty()) return false;
    }
    return host->handlers.size() == 4;
  }));
  EXPECT_EQ(engines_of(*server), 0u);
}

TEST_P(Engines, SoftnicByNameFailsNamingTheCause) {
  start(driven_options(TransportChoice::kAuto), driven_options(TransportChoice::kTcp));
  Recorder& handler = connect({.connect_timeout = 500ms, .transport = TransportChoice::kSoftnic});
  EXPECT_EQ(handler.opened, 0);
  EXPECT_EQ(handler.close_status.code(), Code::kUnsupported);
  EXPECT_THAT(handler.close_status.message(),
              HasSubstr("no softnic engine: the peer has no softnic device"));
}

TEST_P(Engines, RdmaByNameFailsNamingTheCause) {
  start(driven_options(TransportChoice::kSoftnic), driven_options(TransportChoice::kAuto));
  Recorder& handler = connect({.connect_timeout = 500ms, .transport = TransportChoice::kRdma});
  EXPECT_EQ(handler.opened, 0);
  EXPECT_THAT(handler.close_status.message(),
              HasSubstr("no rdma engine: this node has no such device"));
}

TEST_P(Engines, TcpByNameMakesNone) {
  start(driven_options(TransportChoice::kAuto), driven_options(TransportChoice::kAuto));
  Recorder& handler = connect({.connect_timeout = 500ms, .transport = TransportChoice::kTcp});
  ASSERT_EQ(handler.opened, 1);
  EXPECT_EQ(handler.socket->transport(), TransportKind::kTcp);
  EXPECT_EQ(engines_of(*client), 0u);
}

TEST_P(Engines, AreMadeAnewAfterTheirPeerHasGone) {
  start(driven_options(TransportChoice::kAuto), driven_options(TransportChoice::kAuto));
  Recorder& first = connect();
  ASSERT_EQ(first.opened, 1);
  const Address address = host->address();
  host->listener.reset();
  destroy(server, {client.get()});
  ASSERT_TRUE(drive({client.get()}, [&] { return first.closed == 1; }));
  EXPECT_EQ(first.close_status.code(), Code::kUnavailable);
  ASSERT_TRUE(drive({client.get()}, [&] { return engines_of(*client) == 0; }));

  server = make_node(options(driven_options(TransportChoice::kAuto)));
  auto listener = server->listen(address, [&](Socket& socket) -> SocketHandler* {
    host->handlers.push_back(std::make_unique<Recorder>());
    host->handlers.back()->socket = &socket;
    return host->handlers.back().get();
  });
  ASSERT_TRUE(listener.ok()) << listener.status().to_string();
  handlers.emplace_back();
  Recorder& second = handlers.back();
  client->connect(address, {}, &second);
  ASSERT_TRUE(until([&] { return second.opened == 1; }));
  EXPECT_EQ(second.socket->transport(), TransportKind::kSoftnic);
  listener->reset();
}

TEST_P(Engines, AreSetUpUnderASharedSecret) {
  NodeOptions options = driven_options(TransportChoice::kSoftnic);
  options.secret = "open sesame";
  start(options, options);
  Recorder& handler = connect();
  ASSERT_EQ(handler.opened, 1) << handler.close_status.to_string();
  EXPECT_EQ(handler.socket->transport(), TransportKind::kSoftnic);
}

// Somebody between the two ends who takes the devices out of the server's hello.
TEST_P(Engines, ADowngradeOnTheWayIsNoticed) {
  NodeOptions options = driven_options(TransportChoice::kAuto);
  options.secret = "open sesame";
  start(options, options);
  StreamNetwork& network = kernel_world().network();
  const int listener = *network.listen(any_loopback_port());
  handlers.emplace_back();
  Recorder& handler = handlers.back();
  client->connect(*network.local_address(listener), {}, &handler);
  int near = -1;
  ASSERT_TRUE(until([&] { return (near = *network.accept(listener)) >= 0; }));
  const int far = *network.connect(host->address());
  const auto relay = [&](int from, int to, bool forge) {
    uint8_t bytes[4096];
    const iovec in = {bytes, sizeof(bytes)};
    const IoResult got = network.read(from, &in, 1);
    if (got.kind != IoResult::Kind::kOk) return;
    // The hello's device kinds: behind the frame header, magic, version and secret.
    if (forge && bytes[2] == static_cast<uint8_t>(HandshakeType::kServerHello)) {
      bytes[kHandshakeHeaderBytes + 11] = 0;
    }
    const iovec out = {bytes, got.bytes};
    network.write(to, &out, 1);
  };
  ASSERT_TRUE(until([&] {
    relay(near, far, false);
    relay(far, near, true);
    return handler.opened + handler.closed > 0;
  }));
  EXPECT_EQ(handler.opened, 0);
  EXPECT_EQ(handler.close_status.code(), Code::kPermission);
  for (const int fd : {near, far, listener}) network.close(fd);
}

INSTANTIATE_TEST_SUITE_P(With, Engines, ::testing::Bool(), [](const auto& tested) {
  return tested.param ? "SharedReceives" : "OwnReceives";
});

// The SRQ of the server has room for one: the second client is served over TCP, and by RDMA when
// the first has gone.
TEST(SharedReceivesOfNodes, AnEngineThatDoesNotFitIsServedOverTcp) {
  auto server = make_node(with_shared_receives(driven_options(TransportChoice::kAuto), 1));
  Host host(*server);
  host.when_accepted = [](Socket&, Recorder& handler) { echo(handler); };
  std::vector<std::unique_ptr<Node>> clients;
  std::vector<Recorder> handlers(3);
  const auto connect = [&](size_t i) {
    clients.push_back(make_node(driven_options(TransportChoice::kAuto)));
    clients.back()->connect(host.address(), {}, &handlers[i]);
    EXPECT_TRUE(drive({clients.back().get(), server.get()},
                      [&] { return handlers[i].opened + handlers[i].closed > 0; }));
    EXPECT_EQ(handlers[i].opened, 1) << handlers[i].close_status.to_string();
    EXPECT_TRUE(send_text(*handlers[i].socket, *clients.back(), "hello").ok());
    EXPECT_TRUE(drive({clients.back().get(), server.get()},
                      [&] { return handlers[i].messages.size() == 1; }));
    handlers[i].messages.clear();
    return handlers[i].socket->transport();
  };
  EXPECT_EQ(connect(0), TransportKind::kSoftnic);
  EXPECT_EQ(connect(1), TransportKind::kTcp);
  destroy(clients[0], {server.get()});
  EXPECT_TRUE(drive({server.get()}, [&] { return engines_of(*server) == 0; }));
  EXPECT_EQ(server->pool().stats().live_bytes, 0u) << "the SRQ has gone with its last engine";
  EXPECT_EQ(connect(2), TransportKind::kSoftnic);
  for (auto& client : clients) destroy(client, {server.get()});
  host.listener.reset();
}

class ManyEngines : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(With, ManyEngines, ::testing::Bool(), [](const auto& tested) {
  return tested.param ? "SharedReceives" : "OwnReceives";
});

// More engines than one completion queue takes, or all of them on one SRQ: each still gets its
// completions.
TEST_P(ManyEngines, EachGetsItsCompletions) {
  constexpr size_t kServers = 25;
  const NodeOptions client_options = driven_options(TransportChoice::kSoftnic);
  auto client =
      make_node(GetParam() ? with_shared_receives(client_options, kServers) : client_options);
  std::vector<std::unique_ptr<Node>> servers;
  std::vector<std::unique_ptr<Host>> hosts;
  std::vector<Recorder> handlers(kServers);
  std::vector<Node*> all = {client.get()};
  SocketOptions options;
  options.connect_timeout = kPatience;
  for (size_t i = 0; i < kServers; ++i) {
    NodeOptions server = driven_options(TransportChoice::kSoftnic);
    server.memory.cap_bytes = 8 << 20;
    servers.push_back(make_node(server));
    all.push_back(servers.back().get());
    hosts.push_back(std::make_unique<Host>(*servers.back()));
    hosts.back()->when_accepted = [](Socket&, Recorder& handler) { echo(handler); };
    handlers[i].when_open = [&client, i](Socket& socket) {
      EXPECT_TRUE(send_text(socket, *client, std::to_string(i)).ok());
    };
    client->connect(hosts.back()->address(), options, &handlers[i]);
  }
  EXPECT_TRUE(drive(all, [&] {
    for (Recorder& handler : handlers) {
      if (handler.messages.empty()) return false;
    }
    return true;
  }));
  EXPECT_EQ(engines_of(*client), kServers);
  for (size_t i = 0; i < kServers; ++i) {
    ASSERT_EQ(handlers[i].messages.size(), 1u) << handlers[i].close_status.to_string();
    EXPECT_EQ(text_of(handlers[i].messages[0]), std::to_string(i));
    handlers[i].messages.clear();
  }
  all.erase(all.begin());
  destroy(client, all);
  EXPECT_TRUE(drive(all, [&] {
    for (auto& server : servers) {
      if (engines_of(*server) > 0) return false;
    }
    return true;
  }));
  hosts.clear();
}

}  // namespace
}  // namespace be::test
