// rxe0 is deleted while it is in use. This kernel's Soft-RoCE cannot be taken from its users (an
// adapter can: event_router_test.cc): the deletion waits for them, and nobody new is let in.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>

#include "be/verbs/hardware_device.h"
#include "tests/rxe/common/echo.h"
#include "tests/rxe/common/shell.h"

namespace be {
namespace {

using ::testing::HasSubstr;

TEST(Removal, LeavesItsUsersAloneAndLetsNobodyNewIn) {
  auto server = rxe::EchoServer::start("127.0.0.1:0");
  auto client = std::make_unique<rxe::EchoClient>(server->address());
  client->expect_echo(1 << 20);
  FILE* deletion = ::popen("rdma link delete rxe0", "r");
  rxe::shell("while [ -e /dev/infiniband/uverbs0 ]; do sleep 0.1; done");

  client->expect_echoes(8, 1 << 20);
  EXPECT_EQ(client->transport(), TransportKind::kHardware);
  EXPECT_FALSE(list_hardware_devices(0).at(0).usable);
  NodeOptions options;
  options.transport = TransportChoice::kRdma;
  const auto node = Node::create(kernel_world(), options);
  ASSERT_FALSE(node.ok());
  EXPECT_THAT(node.status().to_string(), HasSubstr("no usable RDMA device"));

  client.reset();
  server.reset();
  EXPECT_EQ(::pclose(deletion), 0);
  rxe::shell("rdma link add rxe0 type rxe netdev $RXE_DEVICE");
  rxe::shell("while ! [ -e /dev/infiniband/uverbs0 ]; do sleep 0.1; done");
  EXPECT_TRUE(list_hardware_devices(0).at(0).usable);
}

}  // namespace
}  // namespace be
