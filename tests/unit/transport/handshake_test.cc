// Connections that do not keep to the protocol end with a named error, and disturb nobody.
#include <string>
#include <vector>

#include "be/base/byte_io.h"
#include "be/transport/half_open.h"
#include "be/transport/handshake_frames.h"
#include "be/transport/tcp/tcp_frame.h"
#include "transport_support.h"

namespace be::test {
namespace {

using ::testing::HasSubstr;

std::vector<uint8_t> frame(HandshakeType type, const std::vector<uint8_t>& body = {}) {
  std::vector<uint8_t> bytes(kHandshakeHeaderBytes);
  HandshakeHeader{type, false, static_cast<uint32_t>(body.size())}.encode(bytes.data());
  bytes.insert(bytes.end(), body.begin(), body.end());
  return bytes;
}

std::vector<uint8_t> client_hello() {
  Hello hello;
  hello.max_message_bytes = 1 << 20;
  return frame(HandshakeType::kClientHello, encode(hello));
}

std::vector<uint8_t> tcp_header(uint32_t length, FrameKind kind = FrameKind::kMessage) {
  std::vector<uint8_t> bytes(TcpFrame::kBytes);
  TcpFrame{length, kind}.encode(bytes.data());
  return bytes;
}

// A server, an honest connection that goes on, and a raw peer that does not behave.
class BadPeers : public ::testing::Test {
 protected:
  void SetUp() override {
    client = make_node(driven_options());
    NodeOptions options = driven_options();
    options.handshake_timeout = 50ms;
    options.max_message_bytes = 1 << 20;
    server = make_node(options);
    host = std::make_unique<Host>(*server);
    host->when_accepted = [](Socket&, Recorder& handler) { echo(handler); };
    client->connect(host->address(), {}, &honest);
    EXPECT_TRUE(until([&] { return honest.opened == 1; }));
  }

  void TearDown() override {
    expect_honest_echo();
    honest.messages.clear();
    client.reset();
    if (host->handlers.size() > 1) {
      for (auto& handler : host->handlers) handler->messages.clear();
    }
    EXPECT_TRUE(drive({server.get()}, [&] { return host->accepted(0).closed == 1; }));
    EXPECT_EQ(server->pool().stats().live_bytes, 0u);
    host->listener.reset();
    server.reset();
  }

  bool until(const std::function<bool()>& done) {
    return drive({client.get(), server.get()}, done);
  }

  void expect_honest_echo() {
    honest.messages.clear();
    ASSERT_TRUE(send_text(*honest.socket, *client, "still here").ok());
    ASSERT_TRUE(until([&] { return honest.messages.size() == 1; }));
    EXPECT_EQ(text_of(honest.messages[0]), "still here");
  }

  // What the server's last words to `peer` were.
  Status refusal(RawPeer& peer) {
    std::vector<uint8_t> all;
    for (;;) {
      EXPECT_TRUE(until([&] { return peer.readable_or_ended(); }));
      const std::vector<uint8_t> some = peer.read_some();
      if (some.empty()) break;
      all.insert(all.end(), some.begin(), some.end());
    }
    Status last(Code::kInternal, "no refusal came");
    size_t at = 0;
    while (at + kHandshakeHeaderBytes <= all.size()) {
      const Result<HandshakeHeader> header = HandshakeHeader::decode(&all[at]);
      if (!header.ok()) break;
      const std::span<const uint8_t> body(&all[at] + kHandshakeHeaderBytes, header->body_bytes);
      if (header->type == HandshakeType::kRefuse) last = decode_refusal(body);
      at += kHandshakeHeaderBytes + header->body_bytes;
    }
    return last;
  }

  // Shakes hands by hand: the connection is a TCP socket then.
  void become_socket(RawPeer& peer) {
    peer.write(client_hello());
    peer.write(frame(HandshakeType::kOpenSocket));
    const size_t wanted = 2 * kHandshakeHeaderBytes + encode(Hello{}).size();
    size_t got = 0;
    while (got < wanted) {
      ASSERT_TRUE(until([&] { return peer.readable_or_ended(); }));
      got += peer.read_some().size();
    }
    ASSERT_EQ(host->handlers.size(), 2u);
  }

  std::unique_ptr<Node> client;
  std::unique_ptr<Node> server;
  std::unique_ptr<Host> host;
  Recorder honest;
};

TEST_F(BadPeers, ASilentOneCostsATimeout) {
  RawPeer silent(host->address());
  expect_honest_echo();
  EXPECT_THAT(refusal(silent).to_string(), HasSubstr("no complete handshake within 50 ms"));
}

TEST_F(BadPeers, AHalfHelloCostsATimeout) {
  RawPeer slow(host->address());
  std::vector<uint8_t> hello = client_hello();
  hello.resize(hello.size() / 2);
  slow.write(hello);
  EXPECT_THAT(refusal(slow).to_string(), HasSubstr("no complete handshake"));
}

TEST_F(BadPeers, OneThatFallsSilentAfterTheHelloCostsATimeout) {
  RawPeer slow(host->address());
  slow.write(client_hello());
  EXPECT_THAT(refusal(slow).to_string(), HasSubstr("no complete handshake"));
}

TEST_F(BadPeers, GarbageIsNoHandshake) {
  RawPeer browser(host->address());
  const std::string request = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
  browser.write({request.begin(), request.end()});
  ASSERT_TRUE(until([&] { return browser.readable_or_ended(); }));
}

TEST_F(BadPeers, AnOversizedHandshakeFrameIsNotRead) {
  RawPeer peer(host->address());
  std::vector<uint8_t> header(kHandshakeHeaderBytes);
  HandshakeHeader{HandshakeType::kClientHello, false, kMaxHandshakeBody + 1}.encode(header.data());
  peer.write(header);
  EXPECT_THAT(refusal(peer).to_string(), HasSubstr("oversized handshake frame"));
}

TEST_F(BadPeers, AnotherVersionIsNamed) {
  RawPeer peer(host->address());
  Hello hello;
  hello.version = 99;
  peer.write(frame(HandshakeType::kClientHello, encode(hello)));
  const Status status = refusal(peer);
  EXPECT_EQ(status.code(), Code::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("version 99"));
}

TEST_F(BadPeers, AHelloMustComeFirst) {
  RawPeer peer(host->address());
  peer.write(frame(HandshakeType::kOpenSocket));
  EXPECT_THAT(refusal(peer).to_string(), HasSubstr("unexpected handshake frame"));
}

TEST_F(BadPeers, ASecondHelloIsRefused) {
  RawPeer peer(host->address());
  peer.write(client_hello());
  peer.write(client_hello());
  EXPECT_THAT(refusal(peer).to_string(), HasSubstr("unexpected handshake frame"));
}

TEST_F(BadPeers, TheOldestGivesWayWhenTooManyAreUnderWay) {
  RawPeer oldest(host->address());
  std::vector<std::unique_ptr<RawPeer>> crowd;
  for (size_t i = 0; i < HalfOpen::kMax; ++i) {
    crowd.push_back(std::make_unique<RawPeer>(host->address()));
  }
  EXPECT_THAT(refusal(oldest).to_string(),
              ::testing::AnyOf(HasSubstr("handshakes are under way"), HasSubstr("within 50 ms")));
}

TEST_F(BadPeers, AnOversizedFrameEndsItsConnection) {
  RawPeer peer(host->address());
  become_socket(peer);
  peer.write(tcp_header((1 << 20) + 1));
  ASSERT_TRUE(until([&] { return host->accepted(1).closed == 1; }));
  EXPECT_EQ(host->accepted(1).close_status.code(), Code::kProtocol);
  EXPECT_THAT(host->accepted(1).close_status.message(), HasSubstr("oversized frame"));
}

TEST_F(BadPeers, AMalformedFrameEndsItsConnection) {
  RawPeer peer(host->address());
  become_socket(peer);
  peer.write({1, 0, 0, 0, 77, 0, 0, 0});
  ASSERT_TRUE(until([&] { return host->accepted(1).closed == 1; }));
  EXPECT_EQ(host->accepted(1).close_status.code(), Code::kProtocol);
  EXPECT_THAT(host->accepted(1).close_status.message(), HasSubstr("malformed frame header"));
}

TEST_F(BadPeers, ATruncatedFrameEndsItsConnection) {
  RawPeer peer(host->address());
  become_socket(peer);
  std::vector<uint8_t> bytes = tcp_header(1000);
  bytes.resize(500);
  peer.write(bytes);
  peer.end_writing();
  ASSERT_TRUE(until([&] { return host->accepted(1).closed == 1; }));
  EXPECT_EQ(host->accepted(1).close_status.code(), Code::kUnavailable);
  EXPECT_THAT(host->accepted(1).close_status.message(), HasSubstr("in the middle of a frame"));
}

TEST_F(BadPeers, FramesMayComeByteByByte) {
  RawPeer peer(host->address());
  become_socket(peer);
  host->accepted(1).when_message = nullptr;
  std::vector<uint8_t> bytes = tcp_header(3);
  bytes.insert(bytes.end(), {'a', 'b', 'c'});
  const std::vector<uint8_t> second = tcp_header(0);
  bytes.insert(bytes.end(), second.begin(), second.end());
  for (const uint8_t byte : bytes) {
    peer.write({byte});
    // The bytes pass through the loopback at once: a few turns see them one by one.
    for (int turn = 0; turn < 20; ++turn) server->thread(0).poll();
  }
  ASSERT_TRUE(until([&] { return host->accepted(1).messages.size() == 2; }));
  EXPECT_EQ(text_of(host->accepted(1).messages[0]), "abc");
  EXPECT_EQ(host->accepted(1).messages[1].size(), 0u);
}

class Secrets : public ::testing::Test {
 protected:
  // How a connect between ends with these secrets ends.
  Status connect(const std::string& client_secret, const std::string& server_secret) {
    NodeOptions options = driven_options();
    options.secret = client_secret;
    auto client = make_node(options);
    options.secret = server_secret;
    auto server = make_node(options);
    Host host(*server);
    Recorder handler;
    Status result;
    client->connect(host.address(), {}, &handler);
    EXPECT_TRUE(
        drive({client.get(), server.get()}, [&] { return handler.opened + handler.closed > 0; }));
    EXPECT_EQ(host.handlers.size(), static_cast<size_t>(handler.opened));
    result = handler.close_status;
    client.reset();
    host.listener.reset();
    server.reset();
    return result;
  }
};

TEST_F(Secrets, TheSameOneConnects) { EXPECT_TRUE(connect("open sesame", "open sesame").ok()); }

TEST_F(Secrets, AnotherOneIsRefused) {
  const Status status = connect("open barley", "open sesame");
  EXPECT_EQ(status.code(), Code::kPermission);
  EXPECT_THAT(status.message(), HasSubstr("shared secret"));
}

TEST_F(Secrets, AClientWithoutIsRefused) {
  const Status status = connect("", "open sesame");
  EXPECT_EQ(status.code(), Code::kPermission);
  EXPECT_THAT(status.message(), HasSubstr("demands a shared secret"));
}

TEST_F(Secrets, AServerWithoutIsRefused) {
  const Status status = connect("open sesame", "");
  EXPECT_EQ(status.code(), Code::kPermission);
  EXPECT_THAT(status.message(), HasSubstr("shared secret"));
}

TEST(Connecting, ToASilentServerEndsInTime) {
  auto client = make_node(driven_options());
  const int silent = *kernel_world().network().listen(any_loopback_port());
  const Address address = *kernel_world().network().local_address(silent);
  Recorder handler;
  SocketOptions options;
  options.connect_timeout = 30ms;
  client->connect(address, options, &handler);
  ASSERT_TRUE(drive({client.get()}, [&] { return handler.closed == 1; }));
  EXPECT_EQ(handler.close_status.code(), Code::kUnavailable);
  EXPECT_THAT(handler.close_status.message(), HasSubstr(address.to_string()));
  EXPECT_THAT(handler.close_status.message(), HasSubstr("no answer to the handshake"));
  kernel_world().network().close(silent);
}

TEST(Listening, OnAPortInUseIsNamed) {
  auto node = make_node(driven_options());
  Host host(*node);
  const auto second = node->listen(host.address(), [](Socket&) { return nullptr; });
  EXPECT_EQ(second.status().code(), Code::kAlreadyExists);
  EXPECT_THAT(second.status().message(), HasSubstr(host.address().to_string()));
}

TEST(HandshakeFrames, SurviveEveryTruncation) {
  Hello hello;
  hello.nonce[3] = 7;
  hello.has_secret = true;
  const std::vector<uint8_t> bytes = encode(hello);
  const Result<Hello> back = decode_hello(bytes);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->nonce, hello.nonce);
  EXPECT_TRUE(back->has_secret);
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(decode_hello(std::span(bytes).first(size)).status().code(), Code::kProtocol);
  }
  const std::vector<uint8_t> refusal = encode_refusal(Status(Code::kClosed, "bye\n"));
  EXPECT_EQ(decode_refusal(refusal).to_string(), "closed: bye ");
  for (size_t size = 0; size < refusal.size(); ++size) {
    EXPECT_EQ(decode_refusal(std::span(refusal).first(size)).code(), Code::kProtocol);
  }
}

}  // namespace
}  // namespace be::test
