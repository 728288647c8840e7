#include <sys/wait.h>

#include "tests/unit/softnic/fixture.h"

namespace be {
namespace {

// What the child finds, bit by bit; the exit code says which expectation failed.
int look_around(End& end) {
  int step = 1;
  if (end.post_send(0, 8) != EIO) return step;
  ++step;
  if (end.post_recv(0, 8) != EIO) return step;
  ++step;
  ibv_wc wc;
  if (ibv_poll_cq(end.cq, 1, &wc) != -1) return step;
  ++step;
  if (ibv_req_notify_cq(end.cq, 0) != EIO) return step;
  ++step;
  const auto events = end.events();
  if (events.size() != 1 || events[0].kind != DeviceEvent::Kind::kDeviceRemoved) return step;
  ++step;
  if (end.device->register_memory(end.memory.data(), 64, 0, {}).status().code() != Code::kClosed) {
    return step;
  }
  ++step;
  if (end.device->fail_qp(end.qp).code() != Code::kClosed) return step;
  return 0;
}

TEST(SoftnicFork, InTheChildTheDeviceIsDeadAndTheParentGoesOn) {
  auto a = std::make_unique<End>();
  auto b = std::make_unique<End>();
  connect(*a, *b);
  ASSERT_EQ(b->post_recv(0, 64), 0);
  ASSERT_EQ(a->post_send(0, 8), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const int failed = look_around(*a);
    a.reset();  // tear-down in the child, too
    b.reset();
    _exit(failed != 0 ? failed : testing::Test::HasFailure() ? 100 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(a->events().empty());
  EXPECT_TRUE(b->events().empty());
  EXPECT_EQ(b->poll().size(), 1u);
  b->poll();
  EXPECT_EQ(a->poll().size(), 1u);
  disconnect(*a, *b);
}

}  // namespace
}  // namespace be
