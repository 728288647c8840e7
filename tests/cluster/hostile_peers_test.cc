// Peers that lie, stay silent, or do not know the secret, as processes of their own: what they do
// costs them their own connection, and nobody else anything.
//
// The victim is a Node of this test; liars and an honest client are forked before it exists. Times
// are stated where they are tested; a busy machine is forgiven what it has kept from us.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "be/base/log.h"
#include "be/softnic/device.h"
#include "be/transport/engine_offer.h"
#include "be/transport/node.h"
#include "tests/cluster/common/machine_load.h"
#include "tests/common/handshake_peer.h"
#include "tests/common/hostile_queue_pair.h"

namespace be::cluster {
namespace {

using std::chrono::steady_clock;
using test::HandshakePeer;
using test::HostileQueuePair;
using testing::AnyOf;
using testing::HasSubstr;

constexpr Nanoseconds kPatience = 20s;

// --- Processes ---

// Runs `body` in a forked process, which ends with 0 when it returns. `body` must wait for
// something of ours before it opens devices or threads.
class Child {
 public:
  explicit Child(const std::function<void(int to_parent)>& body) {
    int pair[2];
    MUST_HOLD(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    pid_ = fork();
    MUST_HOLD(pid_ >= 0);
    if (pid_ == 0) {
      ::close(pair[0]);
      alarm(60);  // whatever happens, we do not stay
      body(pair[1]);
      _exit(0);
    }
    ::close(pair[1]);
    socket_ = pair[0];
  }
  ~Child() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    ::close(socket_);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void tell(uint64_t value) const {
    MUST_HOLD(write(socket_, &value, sizeof(value)) == sizeof(value));
  }
  uint64_t hear() const { return hear(socket_); }
  static uint64_t hear(int socket) {
    uint64_t value = 0;
    MUST_HOLD(recv(socket, &value, sizeof(value), MSG_WAITALL) == sizeof(value));
    return value;
  }
  static void say(int socket, uint64_t value) {
    MUST_HOLD(write(socket, &value, sizeof(value)) == sizeof(value));
  }
  // Whether it has ended with 0.
  bool ended_well() {
    int status = 0;
    MUST_HOLD(waitpid(std::exchange(pid_, -1), &status, 0) > 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }

 private:
  pid_t pid_ = -1;
  int socket_ = -1;
};

Address loopback(uint64_t port) {
  return Address::parse("127.0.0.1:" + std::to_string(port)).value();
}

UniqueFd dial(uint64_t port) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)) != 0) fd.reset();
  return fd;
}

NodeOptions node_options(const std::string& secret = "") {
  NodeOptions options;
  options.memory = {.block_bytes = size_t{1} << 20, .cap_bytes = size_t{64} << 20};
  options.secret = secret;
  return options;
}

template <typename Done>
bool wait_for(const Done& done, Nanoseconds patience = kPatience) {
  const auto end = steady_clock::now() + patience;
  while (!done()) {
    if (steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

// --- The victim: a Node with its own thread, which sends every message back ---

class Victim {
 public:
  explicit Victim(const NodeOptions& options) {
    node = Node::create(kernel_world(), options).value();
    listener_ = node->listen(loopback(0),
                             [this](Socket& socket) {
                               const std::lock_guard lock(mutex_);
                               ends_.push_back(std::make_unique<End>(*this));
                               ends_.back()->open = &socket;
                               return ends_.back().get();
                             })
                    .value();
  }

  uint64_t port() const { return listener_->address().port; }
  size_t accepted() {
    const std::lock_guard lock(mutex_);
    return ends_.size();
  }
  // How the n-th accepted socket has ended; nothing while it is open.
  std::optional<Status> end_of(size_t n) {
    const std::lock_guard lock(mutex_);
    return n < ends_.size() ? ends_[n]->ended : std::nullopt;
  }

  std::unique_ptr<Node> node;

 private:
  struct End final : SocketHandler {
    explicit End(Victim& owner) : victim(owner) {}
    void on_open(Socket&) override {}
    void on_message(Socket& socket, Buffer message) override {
      Message echo(std::move(message));
      socket.send(echo, 0).ignore();
    }
    void on_sent(Socket&, uint64_t, const Status&) override {}
    void on_closed(Socket&, const Status& status) override {
      const std::lock_guard lock(victim.mutex_);
      ended = status;
    }
    Victim& victim;
    Socket* open = nullptr;
    std::optional<Status> ended;
  };

  std::mutex mutex_;
  std::vector<std::unique_ptr<End>> ends_;
  std::unique_ptr<Listener> listener_;
};

// --- An honest client: pings until it is told to stop, and says how long its longest took ---

class Pinger final : public SocketHandler {
 public:
  void on_open(Socket& socket) override { open = &socket; }
  void on_message(Socket&, Buffer message) override {
    MUST_HOLD(message.size() == 100 && message.data()[99] == 7);
    ++answers;
  }
  void on_sent(Socket&, uint64_t, const Status&) override {}
  void on_closed(Socket&, const Status&) override {
    open = nullptr;
    closed = true;
  }
  Socket* open = nullptr;
  bool closed = false;
  uint64_t answers = 0;
};

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
  Victim victim(node_options());
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
  Victim victim(options);
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
  Victim victim_;
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
