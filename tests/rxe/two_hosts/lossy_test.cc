// 2 % of all packets lost, the others up to 10 ms late (and in order: netem keeps it with a rate;
// out of order each window is sent again, which takes a minute here): what is sent on several
// sockets of one engine, small and large, arrives once, in order, unchanged.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "tests/rxe/common/echo.h"
#include "tests/rxe/common/shell.h"

namespace be {
namespace {

using namespace std::chrono_literals;
using rxe::shell;

constexpr Nanoseconds kPatience = 100s;
constexpr rxe::Waiting kWaiting{.ack_timeout = 120ms};

// Sends everything back.
struct Mirror final : SocketHandler {
  virtual ~Mirror() = default;
  void on_open(Socket&) override {}
  void on_message(Socket& socket, Buffer buffer) override {
    Message message(std::move(buffer));
    EXPECT_TRUE(socket.send(message, 0).ok());
  }
  void on_sent(Socket&, uint64_t, const Status&) override {}
  void on_closed(Socket&, const Status&) override {}
};

// One socket's messages: each begins with its number, the rest follows from that and the size.
class Stream final : public SocketHandler {
 public:
  Stream(Node& node, std::vector<size_t> sizes) : node_(node), sizes_(std::move(sizes)) {}
  virtual ~Stream() = default;

  void on_open(Socket& socket) override {
    transport = socket.transport();
    for (size_t number = 0; number < sizes_.size(); ++number) {
      Buffer buffer = node_.pool().allocate_buffer(sizes_[number]).value();
      fill(buffer.data(), sizes_[number], number);
      Message message(std::move(buffer));
      ASSERT_TRUE(socket.send(message, 0).ok());
    }
  }
  void on_message(Socket&, Buffer buffer) override {
    ASSERT_LT(arrived, sizes_.size());
    ASSERT_EQ(buffer.size(), sizes_[arrived]) << "message " << arrived << ": order";
    std::vector<uint8_t> expected(buffer.size());
    fill(expected.data(), expected.size(), arrived);
    EXPECT_EQ(std::memcmp(buffer.data(), expected.data(), expected.size()), 0)
        << "message " << arrived;
    ++arrived;
  }
  void on_sent(Socket&, uint64_t, const Status& status) override {
    EXPECT_TRUE(status.ok()) << status.to_string();
  }
  void on_closed(Socket&, const Status& status) override {
    if (!whole()) ADD_FAILURE() << status.to_string();
    closed = true;
  }

  bool whole() const { return arrived == sizes_.size(); }

  size_t arrived = 0;
  bool closed = false;
  TransportKind transport = TransportKind::kTcp;

 private:
  static void fill(uint8_t* to, size_t bytes, size_t number) {
    for (size_t i = 0; i < bytes; ++i) to[i] = static_cast<uint8_t>(number * 31 + i * 7 + i / 253);
  }

  Node& node_;
  const std::vector<size_t> sizes_;
};

TEST(LossyWire, EverythingArrivesOnceInOrderOnEverySocket) {
  const std::string host = ::getenv("RXE_ADDRESS_0");
  const Address mirror_address = Address::parse(host + ":9101").value();
  if (std::string(::getenv("RXE_HOST")) == "0") {
    shell("tc qdisc add dev $RXE_DEVICE root netem loss 2% delay 5ms 5ms rate 1gbit");
    Mirror mirror;
    auto node =
        Node::create(kernel_world(), rxe::node_options(TransportChoice::kRdma, kWaiting)).value();
    auto listener =
        node->listen(mirror_address, [&](Socket&) -> SocketHandler* { return &mirror; }).value();
    rxe::EchoServer::start(host + ":9100")->wait_until_told_to_end();
    listener.reset();
    node.reset();
    shell("tc qdisc del dev $RXE_DEVICE root");
    return;
  }
  rxe::EchoClient control(Address::parse(host + ":9100").value());
  control.wait_for_server();
  NodeOptions options = rxe::node_options(TransportChoice::kRdma, kWaiting);
  options.driven = true;
  auto node = Node::create(kernel_world(), options).value();
  std::deque<Stream> streams;
  const std::vector<size_t> small(20, 100);
  streams.emplace_back(*node, small);
  streams.emplace_back(*node, std::vector<size_t>{64 << 10, 100, 64 << 10, 3000});
  streams.emplace_back(*node, std::vector<size_t>{100, 1 << 20, 100, 64 << 10, 100});
  for (Stream& stream : streams) {
    node->connect(mirror_address, {.connect_timeout = kPatience, .transport = {}}, &stream);
  }
  EXPECT_TRUE(node->thread(0).run_until(
      [&] {
        return std::all_of(streams.begin(), streams.end(),
                           [](const Stream& each) { return each.whole() || each.closed; });
      },
      kernel_world().now() + kPatience));
  for (const Stream& stream : streams) {
    EXPECT_TRUE(stream.whole());
    EXPECT_EQ(stream.transport, TransportKind::kHardware);
  }
  node.reset();
  control.end_server();
}

}  // namespace
}  // namespace be
