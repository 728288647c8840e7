// Two machines on one wire: host 0 serves, host 1 calls; each test runs in both at once.
#include <gtest/gtest.h>

#include <chrono>
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
  void serve_or(const std::function<void(rxe::EchoClient&)>& body,
                const rxe::Waiting& waiting = {}) {
    static int port = 9000;
    const std::string address = fmt::format("{}:{}", ::getenv("RXE_ADDRESS_0"), port++);
    if (is_server()) return rxe::EchoServer::start(address)->wait_until_told_to_end();
    rxe::EchoClient client(Address::parse(address).value(), TransportChoice::kRdma, waiting);
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
  // The kernel sends SYNs again after 1, 3, 7, 15 s: attempts that give up sooner find out sooner.
  const rxe::Waiting waiting{.connect_timeout = 2s};
  serve_or(
      [](rxe::EchoClient& client) {
        shell("tc qdisc add dev $RXE_DEVICE root netem loss 100%");
        const auto begin = std::chrono::steady_clock::now();
        const Status status = client.status_of_call(10s);
        EXPECT_EQ(status.code(), Code::kUnavailable) << status.to_string();
        EXPECT_NE(status.message().find("IBV_WC_RETRY_EXC_ERR"), std::string::npos)
            << status.to_string();
        // Out for ten seconds: every call ends in its time, with a name.
        while (std::chrono::steady_clock::now() < begin + 10s) {
          const auto called = std::chrono::steady_clock::now();
          const Status during = client.status_of_call(1s);
          EXPECT_FALSE(during.ok());
          EXPECT_FALSE(during.message().empty());
          EXPECT_LT(std::chrono::steady_clock::now() - called, 1s + 5s);
        }
        shell("tc qdisc del dev $RXE_DEVICE root");
        client.wait_for_server();
        client.expect_echoes(4, 100'000);
      },
      waiting);
}

// The handshake's TCP passes, RDMA's UDP does not: set-up goes well, and nothing ever arrives.
TEST_F(TwoHosts, AFirewallThatDropsRdmaPacketsLeavesTcp) {
  serve_or([](rxe::EchoClient& client) {
    shell(
        "tc qdisc add dev $RXE_DEVICE clsact && tc filter add dev $RXE_DEVICE ingress protocol ip "
        "u32 match ip dport 4791 0xffff action drop");
    rxe::EchoClient behind_it(client.server(), TransportChoice::kAuto, {.ack_timeout = 60ms});
    behind_it.wait_for_server();
    EXPECT_EQ(behind_it.transport(), TransportKind::kTcp);
    behind_it.expect_echoes(4, 100'000);
    shell("tc qdisc del dev $RXE_DEVICE clsact");
    client.wait_for_server();
  });
}

}  // namespace
}  // namespace be
