// Peers that lie, as processes of their own: it costs them their own connection, and nobody else
// anything. The victim is a Node of this test; liars and an honest client are forked before it
// exists.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include "be/transport/engine_offer.h"
#include "tests/cluster/common/hostile.h"
#include "tests/common/handshake_peer.h"
#include "tests/common/hostile_queue_pair.h"

namespace be::cluster {
namespace {

using std::chrono::steady_clock;
using test::HandshakePeer;
using test::HostileQueuePair;
using testing::HasSubstr;

// Tells: 1 when connected; then, when it has heard anything, its pings and the longest in us.
void ping(int parent) {
  const uint64_t port = Child::hear(parent);
  NodeOptions options = node_options();
  options.driven = true;
  options.transport = TransportChoice::kSoftnic;
  auto node = Node::create(kernel_world(), options).value();
  Pinger pinger;
  node->connect(loopback(port), {5s, std::nullopt}, &pinger);
  node->thread(0).run_until([&] { return pinger.open != nullptr || pinger.closed; },
                            kernel_world().now() + kPatience);
  MUST_HOLD(pinger.open != nullptr);
  Child::say(parent, 1);
  pollfd told{.fd = parent, .events = POLLIN, .revents = 0};
  Nanoseconds longest{};
  while (poll(&told, 1, 0) == 0) {
    Buffer buffer = node->pool().allocate_buffer(100).value();
    std::memset(buffer.data(), 7, 100);
    Message message(std::move(buffer));
    const uint64_t before = pinger.answers;
    const auto start = steady_clock::now();
    MUST_HOLD(pinger.open != nullptr && pinger.open->send(message, 0).ok());
    node->thread(0).run_until([&] { return pinger.answers > before || pinger.closed; },
                              kernel_world().now() + kPatience);
    MUST_HOLD(pinger.answers > before);
    longest = std::max<Nanoseconds>(longest, steady_clock::now() - start);
  }
  Child::say(parent, pinger.answers);
  Child::say(parent, static_cast<uint64_t>(longest.count() / 1000));
  pinger.open->close();
  node->thread(0).run_until([&] { return pinger.closed; }, kernel_world().now() + kPatience);
}
// --- A liar: an engine's peer by hand, until it lies ---

class Liar {
 public:
  explicit Liar(uint64_t port)
      : memory_(station_.pool->allocate_buffer(HostileQueuePair::memory_bytes()).value()),
        queue_pair(station_, memory_),
        fd_(dial(port)),
        handshake_(fd_.get(), HandshakePeer::Role::kClient, "") {
    MUST_HOLD(fd_.valid());
    Hello hello;
    hello.device_kinds = 1 << static_cast<int>(DeviceKind::kSoftnic);
    hello.max_message_bytes = 1 << 20;
    handshake_.send(HandshakeType::kClientHello, encode(hello));
    await(HandshakeType::kServerHello);
    handshake_.send(HandshakeType::kOffer, encode(EngineOffer{.kind = DeviceKind::kSoftnic,
                                                              .terms = queue_pair.terms(),
                                                              .endpoint = queue_pair.endpoint()}));
    answer = decode_engine_offer(await(HandshakeType::kAnswer)).value();
    queue_pair.connect(answer.endpoint, answer.token.data(), true);
    MUST_HOLD(wait_for([this] {
      queue_pair.poll();
      return queue_pair.connected();
    }));
    handshake_.send(HandshakeType::kReady, {});
    await(HandshakeType::kReady);
    FrameHeader open;
    open.type = static_cast<FrameType>(FrameKind::kSocketOpen);
    open.socket = 1;
    queue_pair.send(open);
    MUST_HOLD(wait_for([this] {
      queue_pair.poll();
      return queue_pair.frames_heard > 0;
    }));
  }

  void request_to_write(uint32_t length, uint32_t tag) {
    FrameHeader request;
    request.type = FrameType::kWriteRequest;
    request.socket = 1;
    request.length = length;
    request.value = tag;
    queue_pair.send(request);
  }
  GrantedMemory get_grant(uint32_t length) {
    request_to_write(length, 0);
    MUST_HOLD(wait_for([this] {
      queue_pair.poll();
      return !queue_pair.grants.empty();
    }));
    return queue_pair.grants.back();
  }
  static std::vector<uint8_t> message(uint32_t length) {
    FrameHeader header;
    header.socket = 1;
    header.length = length;
    std::vector<uint8_t> bytes(FrameHeader::kBytes + length, 'x');
    encode(header, bytes.data());
    return bytes;
  }

  // Until the victim has ended the connection.
  void await_the_end() {
    MUST_HOLD(wait_for([this] {
      queue_pair.poll();
      handshake_.receive();
      return handshake_.ended();
    }));
  }

 private:
  std::vector<uint8_t> await(HandshakeType type) {
    std::vector<uint8_t> body;
    MUST_HOLD(wait_for([&] {
      for (HandshakePeer::Frame& frame : handshake_.receive()) {
        MUST_HOLD(frame.type == type);
        body = std::move(frame.body);
        return true;
      }
      return false;
    }));
    return body;
  }

  test::Station station_;
  Buffer memory_;

 public:
  HostileQueuePair queue_pair;
  EngineOffer answer;

 private:
  UniqueFd fd_;
  HandshakePeer handshake_;
};

struct Lie {
  const char* name;
  void (*tell)(Liar& liar);
  const char* status;  // part of what the victim says of it
};

void PrintTo(const Lie& lie, std::ostream* out) { *out << lie.name; }

const Lie kLies[] = {
    {"ALengthThatIsNotTheFrames",
     [](Liar& liar) {
       FrameHeader header;
       header.socket = 1;
       header.length = 100000;
       liar.queue_pair.send(header, Liar::message(10));
     },
     "frame: length"},
    {"AFrameCutShort", [](Liar& liar) { liar.queue_pair.send_bytes(std::vector<uint8_t>(7, 1)); },
     "frame: frame length"},
    {"CreditsThatDoNotExist",
     [](Liar& liar) {
       FrameHeader header;
       header.type = FrameType::kCredits;
       header.value = 1u << 30;
       liar.queue_pair.send(header);
     },
     "Credits: total"},
    {"AGrantThatWasNotGiven",
     [](Liar& liar) {
       const GrantedMemory grant = liar.get_grant(20000);
       liar.queue_pair.write_immediate(Liar::message(100), grant.address, grant.rkey,
                                       grant.grant + 1);
     },
     "immediate: grant"},
    {"AnotherLengthThanTheGrants",
     [](Liar& liar) {
       const GrantedMemory grant = liar.get_grant(20000);
       liar.queue_pair.write_immediate(Liar::message(100), grant.address, grant.rkey, grant.grant);
     },
     "written message: length"},
    {"AGrantTwice",
     [](Liar& liar) {
       const GrantedMemory grant = liar.get_grant(8200);
       liar.queue_pair.write_immediate(Liar::message(8200), grant.address, grant.rkey, grant.grant);
       liar.queue_pair.write_immediate(Liar::message(8200), grant.address, grant.rkey, grant.grant);
     },
     "immediate: grant"},
    {"AMessageLargerThanAgreed", [](Liar& liar) { liar.request_to_write(0x7fffffff, 1); },
     "WriteRequest: length"},
    {"AnAnswerToNothing",
     [](Liar& liar) {
       FrameHeader header;
       header.type = FrameType::kWriteResponse;
       header.value = 3;
       liar.queue_pair.send(header, std::vector<uint8_t>(GrantedMemory::kBytes, 0));
     },
     "WriteResponse: tag"},
    {"ASlotOfUnknownKind",
     [](Liar& liar) {
       liar.queue_pair.send_bent_slot({{12, 99}});
     },
     "a message of unknown kind"},
    {"ASlotThatAcknowledgesWhatWasNotSent",
     [](Liar& liar) {
       liar.queue_pair.send_bent_slot({{3, 0x3f}});
     },
     "acknowledges what was not sent"},
    {"ASlotWhoseBytesLieOutsideOfItsMemory",
     [](Liar& liar) {
       liar.queue_pair.send_bent_slot({{15, 1}});
     },
     "outside of the peer's memory"},
    {"ASocketThatIsNotOpen",
     [](Liar& liar) {
       FrameHeader header;
       header.socket = 99;
       liar.queue_pair.send(header);
     },
     "a frame for a socket that is not open"},
};

class HostilePeers : public testing::TestWithParam<Lie> {};

TEST_P(HostilePeers, EndTheirOwnConnectionWithAName) {
  Child honest(ping);
  Child liar([](int parent) {
    const uint64_t port = Child::hear(parent);
    Liar peer(port);
    Child::say(parent, 1);
    GetParam().tell(peer);
    peer.await_the_end();
  });
  EchoNode victim(node_options());
  const size_t live_before = victim.node->pool().stats().live_bytes;
  honest.tell(victim.port());
  ASSERT_EQ(honest.hear(), 1u);
  const size_t live_of_honest = victim.node->pool().stats().live_bytes;
  EXPECT_GT(live_of_honest, live_before);

  liar.tell(victim.port());
  ASSERT_EQ(liar.hear(), 1u);
  ASSERT_TRUE(wait_for([&] { return victim.end_of(1).has_value(); }));
  const Status status = *victim.end_of(1);
  EXPECT_EQ(status.code(), Code::kProtocol) << status.to_string();
  EXPECT_THAT(status.to_string(), HasSubstr(GetParam().status));
  EXPECT_TRUE(liar.ended_well());

  // What the liar had is back, and the honest one has not noticed anything. It has copies of 256 B
  // at most under way.
  EXPECT_TRUE(wait_for([&] {
    return victim.node->pool().stats().live_bytes <= live_of_honest + 4096;
  })) << victim.node->pool().stats().live_bytes
      << " bytes are live, not " << live_of_honest;
  EXPECT_FALSE(victim.end_of(0).has_value());
  honest.tell(0);
  const uint64_t pings = honest.hear();
  const uint64_t longest_us = honest.hear();
  EXPECT_GT(pings, 0u);
  RecordProperty("pings", static_cast<int>(pings));
  RecordProperty("longest_ping_us", static_cast<int>(longest_us));
  EXPECT_LT(longest_us, 1'000'000u);
  EXPECT_TRUE(honest.ended_well());
  EXPECT_TRUE(wait_for([&] { return victim.node->pool().stats().live_bytes == live_before; }));
}

INSTANTIATE_TEST_SUITE_P(Lies, HostilePeers, testing::ValuesIn(kLies),
                         [](const auto& test) { return std::string(test.param.name); });
}  // namespace
}  // namespace be::cluster
