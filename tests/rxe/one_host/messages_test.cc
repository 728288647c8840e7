// Two nodes on one rxe0: calls whose requests and replies go as SENDs and as WRITE fragments.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tests/rxe/common/echo.h"

namespace be {
namespace {

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

}  // namespace
}  // namespace be
