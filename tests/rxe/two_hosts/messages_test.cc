// Two machines on one wire: host 0 serves, host 1 calls; each test runs in both at once.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <string>

#include "tests/rxe/common/echo.h"
#include "tests/rxe/common/shell.h"

namespace be {
namespace {

using namespace std::chrono_literals;
using rxe::shell;

class TwoHosts : public ::testing::Test {
 protected:
  static bool is_server() { return std::string(::getenv("RXE_HOST")) == "0"; }

  // Each test has a port of its own: a server that is not there yet is no server of another test.
  void serve_or(const std::function<void(rxe::EchoClient&)>& body) {
    static int port = 9000;
    const std::string address = fmt::format("{}:{}", ::getenv("RXE_ADDRESS_0"), port++);
    if (is_server()) return rxe::EchoServer::start(address)->wait_until_told_to_end();
    rxe::EchoClient client(Address::parse(address).value());
    client.wait_for_server();
    body(client);
    EXPECT_EQ(client.transport(), TransportKind::kHardware);
    client.end_server();
  }
};

TEST_F(TwoHosts, SmallAndLargeMessagesComeBackUnchanged) {
  serve_or([](rxe::EchoClient& client) {
    for (const size_t bytes : {32, 300, 4000, 64 << 10, 1 << 20}) client.expect_echo(bytes);
    client.expect_echoes(16, 1 << 20);
  });
}

TEST_F(TwoHosts, WithDifferentMtusTakeTheSmaller) {
  if (is_server()) shell("ip link set $RXE_DEVICE mtu 1500");
  serve_or([](rxe::EchoClient& client) { client.expect_echoes(4, 1 << 20); });
  if (is_server()) shell("ip link set $RXE_DEVICE mtu 9000");
}

TEST_F(TwoHosts, LossAndDelayOfPacketsAreMended) {
  if (is_server()) shell("tc qdisc add dev $RXE_DEVICE root netem loss 2% delay 5ms 2ms");
  serve_or([](rxe::EchoClient& client) {
    for (int round = 0; round < 5; ++round) client.expect_echoes(4, 32 << 10);
    client.expect_echo(256 << 10);
  });
  if (is_server()) shell("tc qdisc del dev $RXE_DEVICE root");
}

TEST_F(TwoHosts, AnInterfaceThatGoesDownEndsCallsByNameUntilItIsUp) {
  serve_or([](rxe::EchoClient& client) {
    shell("ip link set $RXE_DEVICE down");
    EXPECT_FALSE(client.status_of_call(10s).ok());
    shell("ip link set $RXE_DEVICE up");
    client.wait_for_server();
    client.expect_echoes(4, 100'000);
  });
}

// Packets vanish, and nobody says so: the queue pair gives up after its retries.
TEST_F(TwoHosts, APulledCableEndsCallsByNameUntilItIsBack) {
  serve_or([](rxe::EchoClient& client) {
    shell("tc qdisc add dev $RXE_DEVICE root netem loss 100%");
    const Status status = client.status_of_call(10s);
    EXPECT_EQ(status.code(), Code::kUnavailable) << status.to_string();
    EXPECT_NE(status.message().find("IBV_WC_RETRY_EXC_ERR"), std::string::npos)
        << status.to_string();
    shell("tc qdisc del dev $RXE_DEVICE root");
    client.wait_for_server();
    client.expect_echoes(4, 100'000);
  });
}

// The handshake's TCP passes, RDMA's UDP does not: set-up goes well, and nothing ever arrives.
TEST_F(TwoHosts, AFirewallThatDropsRdmaPacketsLeavesTcp) {
  serve_or([](rxe::EchoClient& client) {
    shell(
        "tc qdisc add dev $RXE_DEVICE clsact && tc filter add dev $RXE_DEVICE ingress protocol ip "
        "u32 match ip dport 4791 0xffff action drop");
    rxe::EchoClient behind_it(client.server(), TransportChoice::kAuto, 60ms);
    behind_it.wait_for_server();
    EXPECT_EQ(behind_it.transport(), TransportKind::kTcp);
    behind_it.expect_echoes(4, 100'000);
    shell("tc qdisc del dev $RXE_DEVICE clsact");
    client.wait_for_server();
  });
}

}  // namespace
}  // namespace be
