// A process that may not pin memory, or not open the device: told why, and served over TCP.
#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <memory>

#include "be/verbs/hardware_device.h"
#include "tests/rxe/common/echo.h"
#include "tests/rxe/common/shell.h"

namespace be {
namespace {

using ::testing::HasSubstr;

constexpr uid_t kNobody = 65534;

// In a child, that may fail like a test.
void as_nobody(const std::function<void()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setgroups(0, nullptr) != 0 || ::setuid(kNobody) != 0) ::_exit(2);
    body();
    std::fflush(stdout);
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// softnic is for processes of one user: the server is root's.
class Limits : public ::testing::Test {
 protected:
  void expect_tcp_serves() {
    rxe::EchoClient client(server_->address(), TransportChoice::kAuto);
    client.expect_echo(100'000);
    EXPECT_EQ(client.transport(), TransportKind::kTcp);
  }

 private:
  std::unique_ptr<rxe::EchoServer> server_ =
      rxe::EchoServer::start("127.0.0.1:0", TransportChoice::kAuto);
};

TEST_F(Limits, AShortMemlockLimitIsNamedAndTcpServes) {
  as_nobody([this] {
    const rlimit short_limit = {64 << 10, 64 << 10};
    ASSERT_EQ(::setrlimit(RLIMIT_MEMLOCK, &short_limit), 0);
    NodeOptions options;
    options.transport = TransportChoice::kRdma;
    const auto node = Node::create(kernel_world(), options);
    ASSERT_FALSE(node.ok());
    EXPECT_THAT(node.status().to_string(), HasSubstr("RLIMIT_MEMLOCK is 65536 bytes"));
    expect_tcp_serves();
  });
}

TEST_F(Limits, ADeviceNodeThatMayNotBeOpenedIsNamedAndTcpServes) {
  rxe::shell("chmod 600 /dev/infiniband/uverbs0");
  as_nobody([this] {
    EXPECT_THAT(list_hardware_devices(0).at(0).why, HasSubstr("/dev/infiniband/uverbs0: EACCES"));
    expect_tcp_serves();
  });
  rxe::shell("chmod 666 /dev/infiniband/uverbs0");
}

}  // namespace
}  // namespace be
