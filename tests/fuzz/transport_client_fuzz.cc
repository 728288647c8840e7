// A connecting Node and a hostile server: its hello, answers, refusals and the byte stream around
// them cut and bent; then the frames of the TCP socket, or of the engine over softnic.
//
// Every connect() ends exactly once: opened and closed, or never opened; afterwards memory and
// descriptors are back at the start.
#include "tests/fuzz/common/transport_story.h"

namespace {

using namespace be;
using namespace be::fuzz;

struct Client {
  explicit Client(bool with_secret) : secret(with_secret) {
    node = Node::create(world, story_options(with_secret)).value();
  }
  void poll(int turns) {
    for (int i = 0; i < turns; ++i) node->thread(0).poll();
  }

  const bool secret;
  FuzzWorld world;
  std::unique_ptr<Node> node;
};

class Story {
 public:
  Story(Client& client, HostileHome& home, Input& input)
      : client_(client), queue_pair_(home.station(), home.memory()), input_(input) {}

  void tell() {
    choice_ = input_.u8() % 4 == 0 ? TransportChoice::kTcp : TransportChoice::kAuto;
    connect();
    for (int step = 0; step < 120 && !input_.empty(); ++step) {
      act();
      hear();
    }
    servers_.clear();
    client_.world.network().dialled.clear();
    queue_pair_.leave();
    for (int i = 0; i < 8; ++i) {
      client_.poll(70);
      client_.world.network().dialled.clear();
      client_.world.clock().advance(2s);
    }
    for (const auto& guest : guests_) MUST_HOLD(guest->closed == 1);
    guests_.clear();
    MUST_HOLD(client_.node->pool().stats().live_bytes == 0);
  }

 private:
  static constexpr size_t kMostGuests = 6;
  struct Server {
    Server(UniqueFd dialled, bool secret)
        : fd(std::move(dialled)),
          peer(fd.get(), HandshakePeer::Role::kServer, secret ? kSecret : "") {}
    UniqueFd fd;
    HandshakePeer peer;
  };

  void connect() {
    guests_.push_back(std::make_unique<Guest>());
    SocketOptions options;
    options.transport = choice_;
    client_.node->connect(Address::parse("127.0.0.1:7").value(), options, guests_.back().get());
    take_calls();
  }

  void take_calls() {
    client_.poll(2);
    auto& dialled = client_.world.network().dialled;
    while (!dialled.empty()) {
      servers_.push_back(std::make_unique<Server>(std::move(dialled.front()), client_.secret));
      dialled.pop_front();
    }
    client_.poll(2);
  }

  void act() {
    const uint8_t what = input_.u8() % 18;
    HandshakePeer& peer = servers_[input_.u8() % servers_.size()]->peer;
    switch (what) {
      case 0:
        peer.send_bytes(input_.copy(input_.u8()));
        break;
      case 1:
      case 2:
        peer.send(HandshakeType::kServerHello, draw_hello(input_, client_.secret),
                  draw_proof(input_));
        break;
      case 3:
        peer.send(static_cast<HandshakeType>(input_.u8() % 11), input_.copy(input_.u8()),
                  draw_proof(input_));
        break;
      case 4:
      case 5:
        answer(peer);
        break;
      case 6:
        peer.send(HandshakeType::kAcceptSocket, {}, draw_proof(input_));
        break;
      case 7:
        peer.send(HandshakeType::kReady, {}, draw_proof(input_));
        break;
      case 8:
        peer.send(input_.flag() ? HandshakeType::kDecline : HandshakeType::kRefuse,
                  draw_refusal(input_), draw_proof(input_));
        break;
      case 9:
        client_.world.clock().advance(std::chrono::milliseconds(input_.u16() % 8000));
        break;
      case 10:
        if (input_.u8() % 4 == 0) ::shutdown(peer.fd(), SHUT_WR);
        break;
      case 11:
        send_tcp_frame(peer, input_);
        break;
      case 12:
      case 13:
        send_engine_frame(queue_pair_, input_, MessageClass::kReply);
        break;
      case 14:
        if (guests_.size() < kMostGuests) connect();
        break;
      case 15:
        guest().send(client_.node->pool(), 1 + input_.u16());
        break;
      case 16:
        guest().held.clear();
        if (input_.flag() && guest().socket != nullptr) guest().socket->close();
        break;
      default:
        break;
    }
    client_.poll(1 + input_.u8() % 4 * 22);
    take_calls();
  }

  void answer(HandshakePeer& peer) {
    EngineOffer offer{.kind = DeviceKind::kSoftnic,
                      .terms = queue_pair_.terms(),
                      .endpoint = queue_pair_.endpoint()};
    std::copy_n(kToken, sizeof(kToken), offer.token.begin());
    peer.send(HandshakeType::kAnswer, bent(encode(offer), input_), draw_proof(input_));
  }

  Guest& guest() { return *guests_[input_.u8() % guests_.size()]; }

  void hear() {
    for (const auto& server : servers_) {
      for (const HandshakePeer::Frame& frame : server->peer.receive()) {
        if (frame.type != HandshakeType::kOffer || dialled_) continue;
        const Result<EngineOffer> offer = decode_engine_offer(frame.body);
        MUST_HOLD(offer.ok());
        dialled_ = true;
        queue_pair_.connect(offer->endpoint, kToken, false);
      }
    }
    queue_pair_.poll();
  }

  Client& client_;
  HostileQueuePair queue_pair_;
  Input& input_;
  TransportChoice choice_ = TransportChoice::kAuto;
  std::vector<std::unique_ptr<Server>> servers_;
  std::vector<std::unique_ptr<Guest>> guests_;
  bool dialled_ = false;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Client* const open = new Client(false);
  static Client* const guarded = new Client(true);
  static auto* const theirs = new HostileHome();
  Input input(data, size);
  Client& client = input.flag() ? *guarded : *open;
  Story(client, *theirs, input).tell();
  test::expect_no_more_descriptors();
  return 0;
}
