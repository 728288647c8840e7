// Peers that connect and say nothing, and peers that do not know the secret: others connect in
// their time (stated below; a busy machine is forgiven what it has kept from us), and not a byte
// that is worth anything leaves the process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>

#include "be/softnic/rendezvous.h"
#include "be/transport/engine_offer.h"
#include "tests/cluster/common/hostile.h"
#include "tests/cluster/common/machine_load.h"
#include "tests/common/handshake_peer.h"
#include "tests/common/hostile_queue_pair.h"

namespace be::cluster {
namespace {

using std::chrono::steady_clock;
using test::HandshakePeer;
using test::HostileQueuePair;
using testing::AnyOf;

// --- A thousand that connect and say nothing ---

size_t descriptors_of(pid_t pid) {
  size_t count = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd")) {
    static_cast<void>(entry);
    ++count;
  }
  return count;
}

TEST(SilentPeers, AThousandOfThemKeepNobodyFromConnectingInHalfASecond) {
  constexpr int kSilent = 1000;
  constexpr int kHonest = 20;
  constexpr auto kConnectTime = 500ms;  // the default connect_timeout
  // Dials a thousand times, as fast as it can, and holds what it gets.
  Child silent([](int parent) {
    rlimit files{.rlim_cur = 4096, .rlim_max = 4096};
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    const uint64_t port = Child::hear(parent);
    std::vector<UniqueFd> held;
    for (int i = 0; i < kSilent; ++i) {
      if (UniqueFd fd = dial(port); fd.valid()) held.push_back(std::move(fd));
      if (i == kSilent / 4) Child::say(parent, 1);  // begun: now the others come
    }
    Child::say(parent, held.size());
    Child::hear(parent);
  });
  NodeOptions options = node_options();
  options.handshake_timeout = 1s;
  EchoNode victim(options);
  NodeOptions honest_options = node_options();
  honest_options.driven = true;
  MachineLoad load;
  // An honest client comes and goes; how long it took until it was connected.
  const auto connect_honestly = [&](int i) {
    auto client = Node::create(kernel_world(), honest_options).value();
    Pinger pinger;
    const Nanoseconds kept_before = load.kept_from_us();
    const auto start = steady_clock::now();
    client->connect(loopback(victim.port()), {10s, std::nullopt}, &pinger);
    client->thread(0).run_until([&] { return pinger.open != nullptr || pinger.closed; },
                                kernel_world().now() + kPatience);
    const Nanoseconds took = steady_clock::now() - start;
    EXPECT_NE(pinger.open, nullptr) << "client " << i << " was refused";
    EXPECT_LT(took, kConnectTime + (load.kept_from_us() - kept_before)) << "client " << i;
    if (pinger.open != nullptr) pinger.open->close();
    client->thread(0).run_until([&] { return pinger.closed; }, kernel_world().now() + kPatience);
    return took;
  };
  connect_honestly(-1);  // the victim's I/O thread has its completion channel from now on
  const size_t live_before = victim.node->pool().stats().live_bytes;
  const size_t descriptors_before = descriptors_of(getpid());

  silent.tell(victim.port());
  ASSERT_EQ(silent.hear(), 1u);
  Nanoseconds longest{};
  for (int i = 0; i < kHonest; ++i) longest = std::max(longest, connect_honestly(i));
  RecordProperty("longest_connect_us", static_cast<int>(longest.count() / 1000));
  EXPECT_GT(silent.hear(), size_t{kSilent} / 2);

  // Each silent one cost a place for a second at most; nothing of any of them is left, though they
  // hold on to their ends.
  EXPECT_TRUE(wait_for([&] { return descriptors_of(getpid()) <= descriptors_before; }))
      << descriptors_of(getpid()) << " descriptors, not " << descriptors_before;
  EXPECT_TRUE(wait_for([&] { return victim.node->pool().stats().live_bytes == live_before; }));
  silent.tell(0);
  EXPECT_TRUE(silent.ended_well());
}

// --- Without the secret ---

// What must not be heard by one who does not know the secret.
struct Treasure {
  std::vector<uint8_t> bytes;
  std::string name;
};
template <typename T>
Treasure treasure(const char* name, T value) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(&value);
  return {{bytes, bytes + sizeof(T)}, name};
}

class WithoutTheSecret : public testing::Test {
 protected:
  static constexpr const char* kSecret = "open sesame";

  WithoutTheSecret()
      : memory_(station_.pool->allocate_buffer(HostileQueuePair::memory_bytes()).value()),
        victim_(node_options(kSecret)) {}

  // One who knows it gets an Answer; then we know what the others must not learn. The queue pair
  // of the Answer stays as long as `friend_` does.
  void SetUp() override {
    insider_ = std::make_unique<HostileQueuePair>(station_, memory_);
    friend_ = open(kSecret);
    greet(*friend_, true);
    ASSERT_TRUE(hear(*friend_, HandshakeType::kServerHello).has_value());
    friend_->peer.send(HandshakeType::kOffer, encode(offer()));
    const auto body = hear(*friend_, HandshakeType::kAnswer);
    ASSERT_TRUE(body.has_value());
    const EngineOffer answer = decode_engine_offer(*body).value();
    const softnic::Endpoint endpoint = softnic::decode_endpoint(answer.endpoint).value();
    treasures_ = {treasure("the key of the keepalive word", answer.terms.keepalive_rkey),
                  treasure("the address of the keepalive word", answer.terms.keepalive_address),
                  treasure("the QP number", endpoint.qp_number),
                  treasure("the device's instance", endpoint.instance),
                  {{endpoint.socket_name.begin(), endpoint.socket_name.end()}, "the socket's name"},
                  {{answer.token.begin(), answer.token.end()}, "the token"},
                  {{kSecret, kSecret + std::strlen(kSecret)}, "the secret itself"}};
    for (const Treasure& each : treasures_) {
      EXPECT_EQ(contains(friend_->peer.heard, each.bytes), each.name != "the secret itself")
          << "the friend and " << each.name;
    }
  }

  struct Connection {
    Connection(uint64_t port, const std::string& secret)
        : fd(dial(port)), peer(fd.get(), HandshakePeer::Role::kClient, secret) {}
    UniqueFd fd;
    HandshakePeer peer;
    std::vector<HandshakePeer::Frame> frames;
  };
  std::unique_ptr<Connection> open(const std::string& secret) {
    return std::make_unique<Connection>(victim_.port(), secret);
  }
  static void greet(Connection& connection, bool has_secret) {
    Hello hello;
    hello.has_secret = has_secret;
    hello.device_kinds = 1 << static_cast<int>(DeviceKind::kSoftnic);
    hello.max_message_bytes = 1 << 20;
    hello.nonce.fill(0x11);
    connection.peer.send(HandshakeType::kClientHello, encode(hello));
  }
  EngineOffer offer() {
    return {
        .kind = DeviceKind::kSoftnic, .terms = insider_->terms(), .endpoint = insider_->endpoint()};
  }

  // The body of the first frame of this type; nothing if the connection ends without one.
  static std::optional<std::vector<uint8_t>> hear(Connection& connection, HandshakeType type) {
    std::optional<std::vector<uint8_t>> body;
    EXPECT_TRUE(wait_for([&] {
      for (HandshakePeer::Frame& frame : connection.peer.receive()) {
        if (frame.type == type && !body.has_value()) body = frame.body;
        connection.frames.push_back(std::move(frame));
      }
      return body.has_value() || connection.peer.ended();
    }));
    return body;
  }

  static bool contains(const std::vector<uint8_t>& all, const std::vector<uint8_t>& part) {
    return memmem(all.data(), all.size(), part.data(), part.size()) != nullptr;
  }

  // The connection ends, and not a byte of what it heard was worth anything: a hello, if any, and
  // a refusal, nothing else.
  void expect_nothing_learnt(Connection& connection) {
    EXPECT_FALSE(hear(connection, HandshakeType::kAnswer).has_value());
    EXPECT_TRUE(connection.peer.ended());
    for (const HandshakePeer::Frame& frame : connection.frames) {
      EXPECT_THAT(frame.type, AnyOf(HandshakeType::kServerHello, HandshakeType::kRefuse));
      if (frame.type == HandshakeType::kRefuse) {
        const Status why = decode_refusal(frame.body);
        EXPECT_EQ(why.code(), Code::kPermission) << why.to_string();
      }
    }
    for (const Treasure& each : treasures_) {
      EXPECT_FALSE(contains(connection.peer.heard, each.bytes)) << each.name << " has left";
    }
    EXPECT_EQ(victim_.accepted(), 0u);
  }

  test::Station station_;
  Buffer memory_;
  EchoNode victim_;
  std::unique_ptr<HostileQueuePair> insider_;
  std::unique_ptr<Connection> friend_;
  std::vector<Treasure> treasures_;
};

TEST_F(WithoutTheSecret, OneWhoSaysSoIsRefused) {
  auto stranger = open("");
  greet(*stranger, false);
  expect_nothing_learnt(*stranger);
}

TEST_F(WithoutTheSecret, AnOfferWithoutAProofIsRefused) {
  auto stranger = open("");
  greet(*stranger, true);
  stranger->peer.send(HandshakeType::kOffer, encode(offer()));
  expect_nothing_learnt(*stranger);
}

TEST_F(WithoutTheSecret, AnOfferWithAnotherSecretIsRefused) {
  auto stranger = open("open barley");
  greet(*stranger, true);
  ASSERT_TRUE(hear(*stranger, HandshakeType::kServerHello).has_value());
  stranger->peer.send(HandshakeType::kOffer, encode(offer()));
  expect_nothing_learnt(*stranger);
}

TEST_F(WithoutTheSecret, ASocketOverTcpIsRefusedToo) {
  auto stranger = open("open barley");
  greet(*stranger, true);
  ASSERT_TRUE(hear(*stranger, HandshakeType::kServerHello).has_value());
  stranger->peer.send(HandshakeType::kOpenSocket, {});
  expect_nothing_learnt(*stranger);
}

TEST_F(WithoutTheSecret, TheServersOwnProofReflectedIsNone) {
  auto stranger = open("");
  greet(*stranger, true);
  ASSERT_TRUE(hear(*stranger, HandshakeType::kServerHello).has_value());
  ASSERT_EQ(stranger->frames.front().proof.size(), kHandshakeProofBytes);
  const std::vector<uint8_t> body = encode(offer());
  std::vector<uint8_t> bytes(kHandshakeHeaderBytes);
  HandshakeHeader{HandshakeType::kOffer, true, static_cast<uint32_t>(body.size())}.encode(
      bytes.data());
  bytes.insert(bytes.end(), body.begin(), body.end());
  bytes.insert(bytes.end(), stranger->frames.front().proof.begin(),
               stranger->frames.front().proof.end());
  stranger->peer.send_bytes(bytes);
  expect_nothing_learnt(*stranger);
}

TEST_F(WithoutTheSecret, AFriendsWordsReplayedAreNone) {
  // All that the friend said is known, proofs included; but the server's nonce is another one.
  auto stranger = open("");
  stranger->peer.send_bytes(friend_->peer.said);
  expect_nothing_learnt(*stranger);
}

TEST_F(WithoutTheSecret, AnOfferThatWasMadeWorseOnTheWayIsRefused) {
  // Between a friend and the server: the friend offers softnic, the server hears of no device.
  Connection client(victim_.port(), kSecret);
  Hello hello;
  hello.has_secret = true;
  hello.device_kinds = 1 << static_cast<int>(DeviceKind::kSoftnic);
  hello.max_message_bytes = 1 << 20;
  Hello worse = hello;
  worse.device_kinds = 0;
  client.peer.send_changed(HandshakeType::kClientHello, encode(hello), encode(worse));
  ASSERT_TRUE(hear(client, HandshakeType::kServerHello).has_value());
  client.peer.send(HandshakeType::kOpenSocket, {});  // proven by what the friend has said itself
  expect_nothing_learnt(client);
}

}  // namespace
}  // namespace be::cluster
