// Two nodes on one rxe0: calls whose requests and replies go as SENDs and as WRITE fragments.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <random>
#include <string>

#include "tests/rxe/common/echo.h"

namespace be {
namespace {

using namespace std::chrono_literals;

TEST(Messages, SmallAndLargeOnesComeBackUnchanged) {
  const std::unique_ptr<rxe::EchoServer> server = rxe::EchoServer::start("127.0.0.1:0");
  rxe::EchoClient client(server->address());
  for (const size_t bytes : {32, 300, 4000, 64 << 10, 1 << 20, (1 << 20) + 1}) {
    client.expect_echo(bytes);
  }
  EXPECT_EQ(client.transport(), TransportKind::kHardware);
}

TEST(Messages, ManyLargeOnesAtOnceDisturbNobody) {
  const std::unique_ptr<rxe::EchoServer> server = rxe::EchoServer::start("127.0.0.1:0");
  rxe::EchoClient client(server->address());
  client.expect_echoes(16, 1 << 20);
  EXPECT_EQ(client.transport(), TransportKind::kHardware);
}

// Both ends arm and sleep after 50 us without work: calls come before, at and after that moment.
TEST(Messages, ThatComeWhileAnEndGoesToSleepAreNotMissed) {
  const std::unique_ptr<rxe::EchoServer> server = rxe::EchoServer::start("127.0.0.1:0");
  rxe::EchoClient client(server->address());
  client.wait_for_server();
  std::minstd_rand random(20261130);
  for (int call = 0; call < 300; ++call) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(random() % 400);
    while (std::chrono::steady_clock::now() < until) {
    }
    // A completion that is missed would wait for the keepalive's next tick.
    const Status status = client.status_of_call(30s);
    ASSERT_TRUE(status.ok()) << "call " << call << ": " << status.to_string();
  }
  EXPECT_EQ(client.transport(), TransportKind::kHardware);
}

}  // namespace
}  // namespace be
