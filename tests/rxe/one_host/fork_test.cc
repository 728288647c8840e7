// fork() while memory is registered and in use: both processes live.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

#include "tests/rxe/common/echo.h"

namespace be {
namespace {

TEST(Fork, ParentAndChildBothCallTheServer) {
  const auto server = rxe::EchoServer::start("127.0.0.1:0");
  rxe::EchoClient client(server->address());
  client.expect_echo(1 << 20);
  const pid_t child = ::fork();
  if (child == 0) {
    rxe::EchoClient own(server->address());
    own.expect_echo(1 << 20);
    std::fflush(stdout);
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  client.expect_echoes(8, 1 << 20);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  client.expect_echo(1 << 20);
  EXPECT_EQ(client.transport(), TransportKind::kHardware);
}

}  // namespace
}  // namespace be
