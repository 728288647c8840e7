#include "tests/cluster/common/forked_child.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <ctime>
#include <utility>

namespace be::cluster {

bool Wire::say(uint64_t value) const {
  return ::send(fd_.get(), &value, sizeof(value), MSG_NOSIGNAL) == sizeof(value);
}

std::optional<uint64_t> Wire::hear(Nanoseconds patience) const {
  pollfd wanted{.fd = fd_.get(), .events = POLLIN, .revents = 0};
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(patience).count();
  uint64_t value = 0;
  if (::poll(&wanted, 1, static_cast<int>(ms)) <= 0 ||
      ::recv(fd_.get(), &value, sizeof(value), 0) != sizeof(value)) {
    return std::nullopt;
  }
  return value;
}

ForkedChild::ForkedChild(const std::function<void(Wire&)>& body) {
  int sockets[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
  UniqueFd ours(sockets[0]);
  UniqueFd theirs(sockets[1]);
  pid_ = fork();
  EXPECT_GE(pid_, 0);
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    ours.reset();
    Wire wire(std::move(theirs));
    body(wire);
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  wire_ = Wire(std::move(ours));
}

ForkedChild::~ForkedChild() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

Nanoseconds cpu_time_of(pid_t pid) {
  clockid_t clock;
  timespec time{};
  EXPECT_EQ(clock_getcpuclockid(pid, &clock), 0);
  EXPECT_EQ(clock_gettime(clock, &time), 0);
  return std::chrono::seconds(time.tv_sec) + Nanoseconds(time.tv_nsec);
}

}  // namespace be::cluster
