// A listening Node and hostile clients: the handshake's byte stream cut and bent anywhere, with and
// without a secret, with true and false proofs; then, if they get so far, the frames of a TCP
// socket, or of an engine over softnic and its sockets.
//
// Every accepted socket hears its end exactly once, and afterwards memory and descriptors are back
// at the start.
#include "tests/fuzz/common/transport_story.h"

namespace {

using namespace be;
using namespace be::fuzz;

struct Server {
  explicit Server(bool with_secret) : secret(with_secret) {
    node = Node::create(world, story_options(with_secret)).value();
    listener = node->listen(Address::parse("127.0.0.1:1").value(),
                            [this](Socket& socket) {
                              if (refuse) return static_cast<SocketHandler*>(nullptr);
                              guests.push_back(std::make_unique<Guest>());
                              guests.back()->socket = &socket;
                              return static_cast<SocketHandler*>(guests.back().get());
                            })
                   .value();
  }

  void poll(int turns) {
    for (int i = 0; i < turns; ++i) node->thread(0).poll();
  }

  const bool secret;
  FuzzWorld world;
  std::unique_ptr<Node> node;
  std::vector<std::unique_ptr<Guest>> guests;
  bool refuse = false;
  std::unique_ptr<Listener> listener;
};

class Story {
 public:
  Story(Server& server, HostileHome& home, Input& input)
      : server_(server), queue_pair_(home.station(), home.memory()), input_(input) {}

  void tell() {
    server_.refuse = input_.u8() == 99;
    dial();
    for (int step = 0; step < 120 && !input_.empty(); ++step) {
      Client& client = *clients_[input_.u8() % clients_.size()];
      act(client.peer);
      hear(client);
    }
    clients_.clear();
    queue_pair_.leave();
    // Long enough for every bound: of the handshake, of closing, of draining.
    for (int i = 0; i < 8; ++i) {
      server_.poll(70);
      server_.world.clock().advance(2s);
    }
    for (const auto& guest : server_.guests) MUST_HOLD(guest->closed == 1);
    server_.guests.clear();
    MUST_HOLD(server_.node->pool().stats().live_bytes == 0);
  }

 private:
  static constexpr size_t kMostClients = 3;
  struct Client {
    explicit Client(Server& server)
        : fd(server.world.network().dial()),
          peer(fd.get(), HandshakePeer::Role::kClient, server.secret ? kSecret : "") {}
    UniqueFd fd;
    HandshakePeer peer;
  };

  void dial() { clients_.push_back(std::make_unique<Client>(server_)); }

  void act(HandshakePeer& peer) {
    switch (input_.below(18)) {
      case 0:
        peer.send_bytes(input_.copy(input_.u8()));
        break;
      case 1:
      case 2:
        peer.send(HandshakeType::kClientHello, draw_hello(input_, server_.secret));
        break;
      case 3:
        peer.send(static_cast<HandshakeType>(input_.u8() % 11), input_.copy(input_.u8()),
                  draw_proof(input_));
        break;
      case 4:
      case 5: {
        const EngineOffer offer{.kind = DeviceKind::kSoftnic,
                                .terms = queue_pair_.terms(),
                                .endpoint = queue_pair_.endpoint()};
        peer.send(HandshakeType::kOffer, bent(encode(offer), input_), draw_proof(input_));
        break;
      }
      case 6:
        peer.send(HandshakeType::kOpenSocket, {}, draw_proof(input_));
        break;
      case 7:
        peer.send(HandshakeType::kReady, {}, draw_proof(input_));
        break;
      case 8:
        peer.send(HandshakeType::kDecline, draw_refusal(input_), draw_proof(input_));
        break;
      case 9:
        server_.world.clock().advance(std::chrono::milliseconds(input_.u16() % 8000));
        break;
      case 10:
        if (input_.u8() % 4 == 0) ::shutdown(peer.fd(), SHUT_WR);
        break;
      case 11:
        send_tcp_frame(peer, input_);
        break;
      case 12:
      case 13:
        send_engine_frame(queue_pair_, input_, MessageClass::kRequest);
        break;
      case 14:
        if (clients_.size() < kMostClients) dial();
        break;
      case 15:
        if (!server_.guests.empty()) guest().send(server_.node->pool(), 1 + input_.u16());
        break;
      case 16:
        if (!server_.guests.empty()) {
          guest().held.clear();
          if (input_.flag() && guest().socket != nullptr) guest().socket->close();
        }
        break;
      default:
        break;
    }
    server_.poll(1 + input_.u8() % 4 * 22);
  }

  Guest& guest() { return *server_.guests.back(); }

  void hear(Client& client) {
    for (const HandshakePeer::Frame& frame : client.peer.receive()) {
      if (frame.type != HandshakeType::kAnswer || dialled_) continue;
      const Result<EngineOffer> answer = decode_engine_offer(frame.body);
      MUST_HOLD(answer.ok());
      dialled_ = true;
      queue_pair_.connect(answer->endpoint, answer->token.data(), true);
    }
    queue_pair_.poll();
  }

  Server& server_;
  HostileQueuePair queue_pair_;
  Input& input_;
  std::vector<std::unique_ptr<Client>> clients_;
  bool dialled_ = false;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Server* const open = new Server(false);
  static Server* const guarded = new Server(true);
  static auto* const theirs = new HostileHome();
  Input input(data, size);
  Server& server = input.flag() ? *guarded : *open;
  Story(server, *theirs, input).tell();
  test::expect_no_more_descriptors();
  return 0;
}
