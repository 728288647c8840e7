// Two machines on one wire: host 0 serves, host 1 calls.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "tests/rxe/common/echo.h"

namespace be {
namespace {

TEST(TwoHosts, SmallAndLargeMessagesComeBackUnchanged) {
  const std::string address = std::string(::getenv("RXE_ADDRESS_0")) + ":9000";
  if (std::string(::getenv("RXE_HOST")) == "0") {
    return rxe::EchoServer::start(address)->wait_until_told_to_end();
  }
  rxe::EchoClient client(Address::parse(address).value());
  client.wait_for_server();
  for (const size_t bytes : {32, 300, 4000, 64 << 10, 1 << 20}) client.expect_echo(bytes);
  client.expect_echoes(16, 1 << 20);
  EXPECT_EQ(client.transport(), TransportKind::kHardware);
  client.end_server();
}

}  // namespace
}  // namespace be
