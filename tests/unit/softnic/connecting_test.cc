#include <sys/socket.h>
#include <sys/un.h>

#include "be/softnic/queue_pair.h"
#include "be/softnic/rendezvous.h"
#include "tests/unit/softnic/fixture.h"

namespace be {
namespace {

TEST(SoftnicConnecting, TheHelloMayComeBeforeTheOtherEndIsReady) {
  End a;
  End b;
  ASSERT_TRUE(a.device->connect_qp(a.qp, b.endpoint(), kToken, true, {}).ok());
  EXPECT_TRUE(b.readable());
  EXPECT_TRUE(b.events().empty());
  ASSERT_TRUE(b.device->connect_qp(b.qp, a.endpoint(), kToken, false, {}).ok());
  ASSERT_TRUE(b.readable());
  ASSERT_EQ(b.events().size(), 1u);
  ASSERT_TRUE(a.readable());
  ASSERT_EQ(a.events().size(), 1u);
  EXPECT_EQ(a.device->qp_state(a.qp), IBV_QPS_RTS);
  EXPECT_EQ(b.device->qp_state(b.qp), IBV_QPS_RTS);
  disconnect(a, b);
}

TEST(SoftnicConnecting, AWrongTokenIsRefusedAndTheRightOneStillServed) {
  End a;
  End b;
  End intruder;
  uint8_t wrong[16] = {};
  ASSERT_TRUE(b.device->connect_qp(b.qp, a.endpoint(), kToken, false, {}).ok());
  ASSERT_TRUE(intruder.device->connect_qp(intruder.qp, b.endpoint(), wrong, true, {}).ok());
  EXPECT_TRUE(b.events().empty());
  const auto refused = intruder.events();
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_EQ(refused[0].kind, DeviceEvent::Kind::kConnected);
  EXPECT_EQ(refused[0].status.code(), Code::kUnavailable);
  ASSERT_TRUE(a.device->connect_qp(a.qp, b.endpoint(), kToken, true, {}).ok());
  EXPECT_EQ(b.events().size(), 1u);
  const auto connected = a.events();
  ASSERT_EQ(connected.size(), 1u);
  EXPECT_TRUE(connected[0].status.ok());
  EXPECT_EQ(intruder.retire(), kQuiescedNow);
  disconnect(a, b);
}

TEST(SoftnicConnecting, AnotherQueuePairWithTheTokenIsNotTheOneExpected) {
  End a;
  End b;
  End other;
  ASSERT_TRUE(b.device->connect_qp(b.qp, a.endpoint(), kToken, false, {}).ok());
  ASSERT_TRUE(other.device->connect_qp(other.qp, b.endpoint(), kToken, true, {}).ok());
  const auto events = b.events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].status.code(), Code::kProtocol);
  const auto refused = other.events();
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_FALSE(refused[0].status.ok());
}

TEST(SoftnicConnecting, ASquatterLearnsHalfOfTheTokenOnly) {
  End a;
  const std::string name = "byteexpress-test-squatter-" + std::to_string(getpid());
  auto listener = softnic::listen_abstract(name);
  ASSERT_TRUE(listener.ok());
  auto endpoint = softnic::decode_endpoint(a.endpoint()).value();
  endpoint.socket_name = name;
  ASSERT_TRUE(
      a.device->connect_qp(a.qp, softnic::encode_endpoint(endpoint), kToken, true, {}).ok());
  UniqueFd visitor(accept(listener->get(), nullptr, nullptr));
  softnic::Packet packet;
  softnic::PacketFds fds;
  ASSERT_EQ(softnic::receive_packet(visitor.get(), &packet, &fds), softnic::ReceiveResult::kPacket);
  EXPECT_EQ(std::memcmp(packet.token_half, kToken, 8), 0);
  const auto* bytes = reinterpret_cast<const uint8_t*>(&packet);
  EXPECT_EQ(memmem(bytes, sizeof(packet), kToken + 8, 8), nullptr);
  packet.kind = softnic::PacketKind::kAccept;  // echoing it does not pass
  const int offered[3] = {fds.control.get(), fds.event.get(), -1};
  ASSERT_TRUE(softnic::send_packet(visitor.get(), packet, offered).ok());
  const auto events = a.events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, DeviceEvent::Kind::kConnected);
  EXPECT_EQ(events[0].status.code(), Code::kProtocol);
  EXPECT_EQ(a.device->qp_state(a.qp), IBV_QPS_ERR);
}

// What a process that knows everything about `end` but its token gets to see. It says `hello`.
std::string answer_to(End& end, const softnic::Packet& hello) {
  const auto endpoint = softnic::decode_endpoint(end.endpoint()).value();
  auto socket = softnic::connect_abstract(endpoint.socket_name);
  EXPECT_TRUE(socket.ok());
  UniqueFd control(memfd_create("stranger", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const int offered[3] = {control.get(), control.get(), -1};
  EXPECT_TRUE(softnic::send_packet(socket->get(), hello, offered).ok());
  EXPECT_TRUE(end.events().empty());
  softnic::Packet packet;
  softnic::PacketFds fds;
  const softnic::ReceiveResult result = softnic::receive_packet(socket->get(), &packet, &fds);
  if (fds.control.valid() || fds.event.valid() || fds.data.valid()) return "descriptors";
  return result == softnic::ReceiveResult::kPacket ? "a packet" : "nothing";
}

TEST(SoftnicConnecting, NoDescriptorIsHandedOutWithoutTheToken) {
  End a;
  End b;
  ASSERT_TRUE(b.device->connect_qp(b.qp, a.endpoint(), kToken, false, {}).ok());
  softnic::Packet hello;
  hello.kind = softnic::PacketKind::kHello;
  hello.target_qp = b.qp->qp_num;
  hello.own_qp = a.qp->qp_num;
  hello.instance = softnic::decode_endpoint(a.endpoint()).value().instance;
  EXPECT_EQ(answer_to(b, hello), "nothing");
  std::memcpy(hello.token_half, kToken + softnic::kTokenHalf, softnic::kTokenHalf);
  EXPECT_EQ(answer_to(b, hello), "nothing");  // the half that b shows itself
  std::memcpy(hello.token_half, kToken, softnic::kTokenHalf);
  hello.token_half[softnic::kTokenHalf - 1] ^= 1;
  EXPECT_EQ(answer_to(b, hello), "nothing");
  // The one that is meant is still served.
  ASSERT_TRUE(a.device->connect_qp(a.qp, b.endpoint(), kToken, true, {}).ok());
  EXPECT_EQ(b.events().size(), 1u);
  EXPECT_EQ(a.events().size(), 1u);
  disconnect(a, b);
}

TEST(SoftnicConnecting, ATokenServesOnce) {
  End a;
  End b;
  connect(a, b);
  softnic::Packet hello;
  hello.kind = softnic::PacketKind::kHello;
  hello.target_qp = b.qp->qp_num;
  hello.own_qp = a.qp->qp_num;
  hello.instance = softnic::decode_endpoint(a.endpoint()).value().instance;
  std::memcpy(hello.token_half, kToken, softnic::kTokenHalf);
  EXPECT_EQ(answer_to(b, hello), "nothing");
  EXPECT_EQ(b.device->qp_state(b.qp), IBV_QPS_RTS);
  disconnect(a, b);
}

TEST(SoftnicConnecting, NobodyListeningIsToldAtOnce) {
  End a;
  EndpointBlob gone;
  {
    End b;
    gone = b.endpoint();
  }
  ASSERT_TRUE(a.device->connect_qp(a.qp, gone, kToken, true, {}).ok());
  const auto events = a.events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, DeviceEvent::Kind::kConnected);
  EXPECT_EQ(events[0].status.code(), Code::kUnavailable);
  EXPECT_EQ(a.retire(), kQuiescedNow);
}

TEST(SoftnicConnecting, ThePeerMayGiveUpInTheMiddle) {
  End a;
  End b;
  ASSERT_TRUE(a.device->connect_qp(a.qp, b.endpoint(), kToken, true, {}).ok());
  const QuiesceToken token = a.retire();
  ASSERT_NE(token, kQuiescedNow);
  EXPECT_TRUE(b.events().empty());
  const auto events = a.events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, DeviceEvent::Kind::kQuiesced);
}

TEST(SoftnicConnecting, ThePeerMayGiveUpWhileItIsAccepted) {
  End a;
  End b;
  ASSERT_TRUE(b.device->connect_qp(b.qp, a.endpoint(), kToken, false, {}).ok());
  ASSERT_TRUE(a.device->connect_qp(a.qp, b.endpoint(), kToken, true, {}).ok());
  const QuiesceToken token = a.retire();
  ASSERT_NE(token, kQuiescedNow);
  const auto events = b.events();  // connected, then reset
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].kind, DeviceEvent::Kind::kConnected);
  EXPECT_EQ(events[1].kind, DeviceEvent::Kind::kQpFatal);
  EXPECT_EQ(b.retire(), kQuiescedNow);
  const auto quiet = a.events();
  ASSERT_EQ(quiet.size(), 1u);
  EXPECT_EQ(quiet[0].token, token);
}

// A peer that floods the connection beside the rings must not keep the thread for itself.
TEST(SoftnicConnecting, PacketsOutOfTurnEndThatQueuePairOnly) {
  End a;
  End b;
  End c(a.device);
  End d(b.device);
  connect(a, b);
  connect(c, d);
  softnic::Packet nonsense;
  nonsense.kind = softnic::PacketKind::kAccept;
  const int socket = static_cast<softnic::QueuePair*>(a.qp)->socket.get();
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(softnic::send_packet(socket, nonsense, nullptr).ok());
  const auto events = b.events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, DeviceEvent::Kind::kQpFatal);
  EXPECT_EQ(events[0].status.code(), Code::kProtocol);
  EXPECT_EQ(a.events().size(), 1u);  // it is told, and lets go of b
  EXPECT_TRUE(b.events().empty());
  EXPECT_TRUE(d.events().empty());
  EXPECT_EQ(d.device->qp_state(d.qp), IBV_QPS_RTS);
  EXPECT_EQ(b.retire(), kQuiescedNow);
  EXPECT_EQ(a.retire(), kQuiescedNow);
  disconnect(c, d);
}

TEST(SoftnicConnecting, GarbageOnTheSocketHarmsNobody) {
  End a;
  End b;
  auto socket =
      softnic::connect_abstract(softnic::decode_endpoint(b.endpoint()).value().socket_name);
  ASSERT_TRUE(socket.ok());
  const std::string garbage(5000, 'x');
  ASSERT_GT(send(socket->get(), garbage.data(), garbage.size(), MSG_NOSIGNAL), 0);
  EXPECT_TRUE(b.events().empty());
  connect(a, b);
  disconnect(a, b);
}

TEST(SoftnicConnecting, ReachableComparesHostNamespaceAndUser) {
  End a;
  End b;
  EXPECT_TRUE(a.device->reachable(b.endpoint()).ok());
  const auto endpoint = softnic::decode_endpoint(b.endpoint()).value();
  auto other = endpoint;
  other.host.uid += 1;
  EXPECT_EQ(a.device->reachable(softnic::encode_endpoint(other)).code(), Code::kUnavailable);
  other = endpoint;
  other.host.network_namespace += 1;
  EXPECT_EQ(a.device->reachable(softnic::encode_endpoint(other)).code(), Code::kUnavailable);
  other = endpoint;
  other.host.boot_id[0] ^= 1;
  EXPECT_EQ(a.device->reachable(softnic::encode_endpoint(other)).code(), Code::kUnavailable);
  EndpointBlob cut = b.endpoint();
  cut.resize(cut.size() - 1);
  EXPECT_EQ(a.device->reachable(cut).code(), Code::kProtocol);
  EXPECT_EQ(a.device->reachable({}).code(), Code::kProtocol);
}

TEST(SoftnicConnecting, OneDeviceMayConnectTwoOfItsOwnQueuePairs) {
  End a;
  End b(a.device);
  connect(a, b);
  ASSERT_EQ(b.post_recv(0, 4096), 0);
  std::memset(a.memory.data(), 5, 4096);
  ASSERT_EQ(a.post_send(0, 100), 0);
  ASSERT_EQ(b.poll().size(), 1u);
  EXPECT_EQ(b.memory.data()[99], 5);
  // Only the first memfd is shared with peers: b's memory is not, so it can be a source only.
  ASSERT_EQ(b.post_send(0, 3000), 0);
  ASSERT_EQ(a.post_recv(0, 4096), 0);
  const auto completions = a.poll();  // the receive, and with it the acknowledgement
  ASSERT_EQ(completions.size(), 2u);
  EXPECT_EQ(completions[0].byte_len, 3000u);
  disconnect(a, b);
}

TEST(SoftnicConnecting, SecondConnectOfAQueuePairIsRefused) {
  End a;
  End b;
  connect(a, b);
  EXPECT_EQ(a.device->connect_qp(a.qp, b.endpoint(), kToken, true, {}).code(),
            Code::kInvalidArgument);
  disconnect(a, b);
}

}  // namespace
}  // namespace be
