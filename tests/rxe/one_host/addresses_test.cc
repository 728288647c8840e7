// Which address rxe0 is taken with, as addresses of the host come and go.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "be/verbs/hardware_device.h"
#include "tests/rxe/common/echo.h"
#include "tests/rxe/common/shell.h"

namespace be {
namespace {

using rxe::shell;
using ::testing::HasSubstr;

// Gives the host's address back at the end.
class Addresses : public ::testing::Test {
 protected:
  Addresses() { shell("ip address flush dev $RXE_DEVICE scope global"); }
  ~Addresses() override {
    shell("ip address flush dev $RXE_DEVICE scope global");
    shell("ip address add $RXE_ADDRESS_0/24 dev $RXE_DEVICE");
  }

  static std::string taken() { return list_hardware_devices(0).at(0).why; }
};

TEST_F(Addresses, AHostWithIpv6OnlyIsServed) {
  shell("ip address add 2001:db8::2/64 dev $RXE_DEVICE nodad");
  EXPECT_THAT(taken(), HasSubstr("RoCEv2 GID 2001:db8::2 "));
  const auto server = rxe::EchoServer::start("[2001:db8::2]:0");
  rxe::EchoClient client(server->address());
  client.expect_echo(100'000);
  EXPECT_EQ(client.transport(), TransportKind::kHardware);
}

TEST_F(Addresses, WithoutAnyOtherTheLinkLocalOneIsTaken) {
  EXPECT_THAT(taken(), HasSubstr("RoCEv2 GID fe80::"));
  const auto server = rxe::EchoServer::start("127.0.0.1:0");
  rxe::EchoClient client(server->address());
  client.expect_echo(100'000);
  EXPECT_EQ(client.transport(), TransportKind::kHardware);
}

TEST_F(Addresses, ThatOfAnotherNetworkNamespaceIsNot) {
  shell("ip netns add other");
  shell("ip link add link $RXE_DEVICE name there type macvlan");
  shell("ip link set there netns other");
  shell("ip -n other address add 10.0.0.77/24 dev there");
  shell("ip -n other link set there up");
  shell("grep -q ':0a00:004d$' /sys/class/infiniband/rxe0/ports/1/gids/*");
  shell("ip address add 2001:db8::2/64 dev $RXE_DEVICE nodad");
  EXPECT_THAT(taken(), HasSubstr("RoCEv2 GID 2001:db8::2 "));
  shell("ip netns delete other");
}

TEST_F(Addresses, AreReadAgainForEveryConnection) {
  shell("ip address add 10.0.0.8/24 dev $RXE_DEVICE");
  const auto server = rxe::EchoServer::start("127.0.0.1:0");
  shell("ip address flush dev $RXE_DEVICE scope global");
  shell("ip address add 10.0.0.9/24 dev $RXE_DEVICE");
  rxe::EchoClient client(server->address());
  client.expect_echo(100'000);
  EXPECT_EQ(client.transport(), TransportKind::kHardware);
}

}  // namespace
}  // namespace be
