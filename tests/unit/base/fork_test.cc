#include "be/base/fork.h"

#include <gmock/gmock.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "be/base/log.h"
#include "tests/unit/base/forked_child.h"

namespace be {
namespace {

TEST(ForkGuard, KnowsAChildAndAChildsChildFromTheProcessItWasMadeIn) {
  const ForkGuard guard;
  EXPECT_FALSE(guard.in_child());
  run_in_child([&] {
    EXPECT_IN_CHILD(guard.in_child());
    const ForkGuard made_here;
    EXPECT_IN_CHILD(!made_here.in_child());
    const pid_t grandchild = start_child([&] {
      EXPECT_IN_CHILD(guard.in_child());
      EXPECT_IN_CHILD(made_here.in_child());
    });
    int status = 0;
    EXPECT_IN_CHILD(waitpid(grandchild, &status, 0) == grandchild && status == 0);
  });
  EXPECT_FALSE(guard.in_child());
}

TEST(ForkWatcher, IsToldInTheChildOnlyAndNotAfterItsEnd) {
  int told = 0;
  const auto count = [](void* owner) { ++*static_cast<int*>(owner); };
  const ForkWatcher first(count, &told);
  auto ended = std::make_unique<ForkWatcher>(count, &told);
  const ForkWatcher last(count, &told);
  ended.reset();
  run_in_child([&] { EXPECT_IN_CHILD(told == 2); });
  EXPECT_EQ(told, 0);
}

TEST(ForkedStatus, NamesTheThing) {
  const Status status = forked_status("the teapot");
  EXPECT_EQ(status.code(), Code::kClosed);
  EXPECT_THAT(status.message(), ::testing::HasSubstr("the teapot"));
  EXPECT_THAT(status.message(), ::testing::HasSubstr("fork()"));
}

// The locks of logging and of forks themselves are whole in a child, whatever other threads were
// at.
TEST(Fork, AChildOfABusyProcessCanLogAndMakeWatchers) {
  std::atomic<bool> stop{false};
  testing::internal::CaptureStderr();
  std::vector<std::thread> busy;
  for (int i = 0; i < 2; ++i) {
    busy.emplace_back([&] {
      while (!stop.load()) {
        const ForkWatcher watcher([](void*) {}, nullptr);
        log_error("in the parent");
      }
    });
  }
  for (int i = 0; i < 30; ++i) {
    run_in_child([] {
      const ForkWatcher watcher([](void*) {}, nullptr);
      log_error("in the child");
    });
  }
  stop = true;
  for (std::thread& thread : busy) thread.join();
  testing::internal::GetCapturedStderr();
}

}  // namespace
}  // namespace be
