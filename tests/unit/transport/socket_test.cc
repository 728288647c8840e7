// One socket between two nodes, over each transport.
#include <string>
#include <vector>

#include "transport_support.h"

namespace be::test {
namespace {

using ::testing::HasSubstr;

enum class Way : uint8_t { kTcp, kSoftnic, kSoftnicWithSharedReceives };

class Sockets : public ::testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    kernel_world();  // keeps descriptors of its own
    descriptors_ = open_descriptors();
    client = make_node(
        options(GetParam() == Way::kTcp ? TransportChoice::kTcp : TransportChoice::kSoftnic));
    server = make_node(options(TransportChoice::kAuto));
    host = std::make_unique<Host>(*server);
  }

  void TearDown() override {
    peer = nullptr;
    handler.messages.clear();
    if (host) {
      for (auto& accepted : host->handlers) accepted->messages.clear();
    }
    if (client) {
      destroy(client, {server.get()});
    }
    if (host) host->listener.reset();
    EXPECT_TRUE(until([&] { return server->pool().stats().live_bytes == 0; }));
    EXPECT_EQ(server->pool().stats().live_bytes, 0u);
    server.reset();
    EXPECT_EQ(open_descriptors(), descriptors_);
  }

  static NodeOptions options(TransportChoice transport) {
    NodeOptions made = driven_options(transport);
    return GetParam() == Way::kSoftnicWithSharedReceives ? with_shared_receives(made, 2) : made;
  }

  bool until(const std::function<bool()>& done) {
    std::vector<Node*> nodes;
    if (client) nodes.push_back(client.get());
    nodes.push_back(server.get());
    return drive(nodes, done);
  }

  // Opens the one socket of most tests.
  void open() {
    client->connect(host->address(), {}, &handler);
    ASSERT_TRUE(until([&] { return handler.opened + handler.closed > 0; }));
    ASSERT_EQ(handler.opened, 1) << handler.close_status.to_string();
    peer = &host->accepted(0);
  }

  std::unique_ptr<Node> client;
  std::unique_ptr<Node> server;
  std::unique_ptr<Host> host;
  Recorder handler;
  Recorder* peer = nullptr;

 private:
  size_t descriptors_ = 0;
};

TEST_P(Sockets, OpenAtBothEnds) {
  open();
  EXPECT_EQ(handler.socket->remote(), host->address());
  EXPECT_EQ(handler.socket->transport(), peer->socket->transport());
  EXPECT_TRUE(peer->socket->remote().is_loopback());
  EXPECT_EQ(host->handlers.size(), 1u);
}

TEST_P(Sockets, CarryMessagesOfEverySizeBothWays) {
  open();
  echo(*peer);
  const std::vector<size_t> sizes = {1,     7,       32,      255,          256,   257,
                                     4000,  4096,    4097,    16 << 10,     16385, 65536,
                                     65537, 1 << 20, 3 << 20, (5 << 20) + 3};
  for (size_t i = 0; i < sizes.size(); ++i) {
    Message message(patterned(*client, sizes[i], static_cast<uint32_t>(i)));
    ASSERT_TRUE(handler.socket->send(message, 0).ok());
  }
  ASSERT_TRUE(until([&] { return handler.messages.size() == sizes.size(); }));
  for (size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_TRUE(has_pattern(handler.messages[i], sizes[i], static_cast<uint32_t>(i))) << sizes[i];
  }
}

TEST_P(Sockets, CarryAnEmptyMessage) {
  open();
  Message message;
  ASSERT_TRUE(handler.socket->send(message, 5).ok());
  ASSERT_TRUE(until([&] { return peer->messages.size() == 1 && handler.sent.size() == 1; }));
  EXPECT_EQ(peer->messages[0].size(), 0u);
}

TEST_P(Sockets, GatherHeaderAndPartsIntoOneBuffer) {
  open();
  for (const size_t scale : {1, 100, 3000, 300000}) {
    peer->messages.clear();
    Message message(patterned(*client, 3 * scale, 1));
    message.append(patterned(*client, 5 * scale, 2));
    message.append(patterned(*client, scale, 3));
    const std::string header = "thirteen byte";
    message.set_header(header.data(), header.size());
    ASSERT_TRUE(handler.socket->send(message, 0).ok());
    ASSERT_TRUE(until([&] { return peer->messages.size() == 1; }));
    Buffer& got = peer->messages[0];
    ASSERT_EQ(got.size(), 13 + 9 * scale);
    EXPECT_EQ(text_of(got).substr(0, 13), header);
    got.drop_front(13);
    EXPECT_TRUE(has_pattern(got.share(0, 3 * scale), 3 * scale, 1));
    EXPECT_TRUE(has_pattern(got.share(3 * scale, 5 * scale), 5 * scale, 2));
    EXPECT_TRUE(has_pattern(got.share(8 * scale, scale), scale, 3));
  }
}

TEST_P(Sockets, DeliverThousandsOfMessagesInOrder) {
  open();
  echo(*peer);
  constexpr uint64_t kCount = 5000;
  uint64_t next_out = 0;
  uint64_t next_in = 0;
  handler.when_message = [&](Socket&, Buffer buffer) {
    // Sizes around the eager limit, so that small and large messages follow each other.
    EXPECT_TRUE(has_pattern(buffer, 1 + next_in * 37 % 9000, static_cast<uint32_t>(next_in)));
    ++next_in;
  };
  ASSERT_TRUE(until([&] {
    while (next_out < kCount && next_out - next_in < 64) {
      Message message(
          patterned(*client, 1 + next_out * 37 % 9000, static_cast<uint32_t>(next_out)));
      const uint64_t cookie = next_out + 1;
      if (!handler.socket->send(message, cookie).ok()) break;
      ++next_out;
    }
    return next_in == kCount && handler.sent.size() == kCount;
  }));
  for (uint64_t i = 0; i < kCount; ++i) {
    EXPECT_EQ(handler.sent[i].first, i + 1);
    EXPECT_TRUE(handler.sent[i].second.ok());
  }
}

TEST_P(Sockets, AcceptorsMaySendFromWithin) {
  host->when_accepted = [&](Socket& socket, Recorder&) {
    EXPECT_TRUE(send_text(socket, *server, "welcome").ok());
  };
  open();
  ASSERT_TRUE(until([&] { return handler.messages.size() == 1; }));
  EXPECT_EQ(text_of(handler.messages[0]), "welcome");
}

TEST_P(Sockets, ARefusedSocketNeverOpens) {
  host->listener.reset();
  auto refusing = server->listen(any_loopback_port(), [](Socket&) { return nullptr; });
  ASSERT_TRUE(refusing.ok());
  client->connect((*refusing)->address(), {}, &handler);
  ASSERT_TRUE(until([&] { return handler.closed == 1; }));
  EXPECT_EQ(handler.opened, 0);
  EXPECT_EQ(handler.close_status.code(), Code::kUnavailable);
  EXPECT_THAT(handler.close_status.message(), HasSubstr((*refusing)->address().to_string()));
  EXPECT_THAT(handler.close_status.message(), HasSubstr("refused"));
}

TEST_P(Sockets, AClosedPortIsNamed) {
  const Address address = host->address();
  host->listener.reset();
  client->connect(address, {}, &handler);
  ASSERT_TRUE(until([&] { return handler.closed == 1; }));
  EXPECT_EQ(handler.opened, 0);
  EXPECT_EQ(handler.close_status.code(), Code::kUnavailable);
  EXPECT_THAT(handler.close_status.message(), HasSubstr(address.to_string()));
  EXPECT_THAT(handler.close_status.message(), HasSubstr("ECONNREFUSED"));
}

TEST_P(Sockets, CloseDeliversWhatWasSentBefore) {
  open();
  for (int i = 0; i < 20; ++i) {
    Message message(patterned(*client, 100'000, static_cast<uint32_t>(i)));
    ASSERT_TRUE(handler.socket->send(message, 1).ok());
  }
  handler.socket->close();
  ASSERT_TRUE(until([&] { return handler.closed == 1 && peer->closed == 1; }));
  EXPECT_EQ(handler.close_status.code(), Code::kClosed);
  EXPECT_EQ(peer->close_status.code(), Code::kClosed);
  ASSERT_EQ(peer->messages.size(), 20u);
  for (uint32_t i = 0; i < 20; ++i) EXPECT_TRUE(has_pattern(peer->messages[i], 100'000, i));
  ASSERT_EQ(handler.sent.size(), 20u);
  for (const auto& [cookie, status] : handler.sent) EXPECT_TRUE(status.ok());
}

TEST_P(Sockets, BothEndsMayCloseAtOnce) {
  open();
  handler.socket->close();
  peer->socket->close();
  ASSERT_TRUE(until([&] { return handler.closed == 1 && peer->closed == 1; }));
  EXPECT_EQ(handler.close_status.code(), Code::kClosed);
  EXPECT_EQ(peer->close_status.code(), Code::kClosed);
}

TEST_P(Sockets, ASendAfterCloseLeavesTheMessageWithItsOwner) {
  open();
  handler.socket->close();
  Message message(patterned(*client, 10, 1));
  EXPECT_EQ(handler.socket->send(message, 1).code(), Code::kClosed);
  EXPECT_TRUE(has_pattern(message.parts[0], 10, 1));
  ASSERT_TRUE(until([&] { return handler.closed == 1; }));
  EXPECT_TRUE(handler.sent.empty());
}

TEST_P(Sockets, HandlersMayCloseWithinTheirCallbacks) {
  open();
  peer->when_message = [&](Socket& socket, Buffer) { socket.close(); };
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(send_text(*handler.socket, *client, "x").ok());
  ASSERT_TRUE(until([&] { return handler.closed == 1 && peer->closed == 1; }));

  Recorder second;
  second.when_open = [&](Socket& socket) { socket.close(); };
  client->connect(host->address(), {}, &second);
  ASSERT_TRUE(until([&] { return second.closed == 1 && host->accepted(1).closed == 1; }));

  Recorder third;
  third.when_open = [&](Socket& socket) { EXPECT_TRUE(send_text(socket, *client, "x", 7).ok()); };
  third.when_sent = [&](Socket& socket, uint64_t, const Status&) { socket.close(); };
  client->connect(host->address(), {}, &third);
  ASSERT_TRUE(until([&] { return third.closed == 1 && host->accepted(2).closed == 1; }));

  host->when_accepted = [](Socket& socket, Recorder&) { socket.close(); };
  Recorder fourth;
  client->connect(host->address(), {}, &fourth);
  ASSERT_TRUE(until([&] { return fourth.closed == 1 && host->accepted(3).closed == 1; }));
}

TEST_P(Sockets, RefuseMessagesThatThePeerDoesNotTake) {
  NodeOptions modest_options = options(TransportChoice::kAuto);
  modest_options.max_message_bytes = 1000;
  auto modest = make_node(modest_options);
  Host modest_host(*modest);
  client->connect(modest_host.address(), {}, &handler);
  ASSERT_TRUE(drive({client.get(), modest.get()}, [&] { return handler.opened == 1; }));
  EXPECT_EQ(handler.socket->max_message_bytes(), 1000u);
  Message large(patterned(*client, 1001, 1));
  EXPECT_EQ(handler.socket->send(large, 1).code(), Code::kInvalidArgument);
  Message largest(patterned(*client, 1000, 1));
  ASSERT_TRUE(handler.socket->send(largest, 1).ok());
  ASSERT_TRUE(drive({client.get(), modest.get()},
                    [&] { return modest_host.accepted(0).messages.size() == 1; }));
  modest_host.accepted(0).messages.clear();
  handler.socket->close();
  ASSERT_TRUE(drive({client.get(), modest.get()},
                    [&] { return handler.closed == 1 && modest_host.accepted(0).closed == 1; }));
  modest_host.listener.reset();
  destroy(modest, {client.get()});
}

TEST_P(Sockets, AFullQueueRefusesAndRecovers) {
  open();
  uint64_t accepted = 0;
  Status refusal;
  for (; accepted < 100'000; ++accepted) {
    Message message(patterned(*client, 64, 1));
    refusal = handler.socket->send(message, accepted + 1);
    if (!refusal.ok()) {
      EXPECT_TRUE(has_pattern(message.parts[0], 64, 1));
      break;
    }
  }
  EXPECT_EQ(refusal.code(), Code::kResourceExhausted);
  ASSERT_TRUE(until([&] { return handler.sent.size() == accepted; }));
  ASSERT_TRUE(send_text(*handler.socket, *client, "again").ok());
  ASSERT_TRUE(until([&] { return peer->messages.size() == accepted + 1; }));
  EXPECT_EQ(text_of(peer->messages.back()), "again");
}

TEST_P(Sockets, EndWithTheirNodeWhileTrafficIsInFlight) {
  open();
  echo(*peer);
  uint64_t accepted = 0;
  for (int i = 0; i < 50; ++i) {
    Message message(patterned(*client, 200'000, 1));
    if (handler.socket->send(message, ++accepted).ok()) continue;
    --accepted;
    break;
  }
  ASSERT_TRUE(until([&] { return handler.messages.size() >= 2; }));
  handler.messages.clear();
  destroy(client, {server.get()});
  EXPECT_EQ(handler.closed, 1);
  EXPECT_EQ(handler.close_status.code(), Code::kClosed);
  EXPECT_EQ(handler.sent.size(), accepted);
  ASSERT_TRUE(until([&] { return peer->closed == 1; }));
}

TEST_P(Sockets, ConnectsUnderWayEndWithTheirNode) {
  client->connect(host->address(), {}, &handler);
  client->thread(0).poll();
  Recorder posted;
  client->connect(host->address(), {}, &posted);
  destroy(client, {server.get()});
  EXPECT_EQ(handler.closed, 1);
  EXPECT_EQ(handler.close_status.code(), Code::kClosed);
  EXPECT_EQ(posted.closed, 1);
}

TEST_P(Sockets, ManyAreOpenAtOnce) {
  constexpr size_t kCount = 100;
  std::vector<std::unique_ptr<Recorder>> handlers;
  host->when_accepted = [](Socket&, Recorder& accepted) { echo(accepted); };
  size_t answered = 0;
  SocketOptions options;
  options.connect_timeout = kPatience;
  for (size_t i = 0; i < kCount; ++i) {
    handlers.push_back(std::make_unique<Recorder>());
    handlers[i]->when_open = [&, i](Socket& socket) {
      EXPECT_TRUE(send_text(socket, *client, std::to_string(i)).ok());
    };
    handlers[i]->when_message = [&, i](Socket&, Buffer message) {
      EXPECT_EQ(text_of(message), std::to_string(i));
      ++answered;
    };
    client->connect(host->address(), options, handlers[i].get());
  }
  ASSERT_TRUE(until([&] { return answered == kCount; }));
  for (auto& each : handlers) each->socket->close();
  ASSERT_TRUE(until([&] {
    for (auto& each : handlers) {
      if (each->closed == 0) return false;
    }
    return true;
  }));
}

std::string way_name(const ::testing::TestParamInfo<Way>& tested) {
  switch (tested.param) {
    case Way::kTcp:
      return "Tcp";
    case Way::kSoftnic:
      return "Softnic";
    case Way::kSoftnicWithSharedReceives:
      return "SoftnicWithSharedReceives";
  }
  return "";
}

INSTANTIATE_TEST_SUITE_P(Over, Sockets,
                         ::testing::Values(Way::kTcp, Way::kSoftnic,
                                           Way::kSoftnicWithSharedReceives),
                         way_name);

}  // namespace
}  // namespace be::test
