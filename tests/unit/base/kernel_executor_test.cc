// The Executor, Clock and randomness of the kernel World.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

#include <array>
#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "be/base/world.h"

namespace be {
namespace {

using testing::Each;

std::string name_of_this_thread() {
  char name[16] = {};
  pthread_getname_np(pthread_self(), name, sizeof(name));
  return name;
}

std::unique_ptr<WorkerPool> make_pool(int threads, const std::string& name = "test") {
  Result<std::unique_ptr<WorkerPool>> pool = kernel_world().executor().start_workers(name, threads);
  EXPECT_TRUE(pool.ok()) << pool.status().to_string();
  return std::move(pool).value();
}

TEST(KernelExecutor, LoopCallsItsStepUntilItIsFalseAndJoinWaitsForIt) {
  const std::unique_ptr<Poller> poller = std::move(kernel_world().make_poller()).value();
  int steps = 0;
  std::string name;
  std::unique_ptr<Loop> loop = std::move(kernel_world().executor().start_loop("io-0", *poller, [&] {
                                 if (steps == 0) poller->wait(kNever);
                                 name = name_of_this_thread();
                                 return ++steps < 5;
                               })).value();
  poller->wake();
  loop->join();
  EXPECT_EQ(steps, 5);
  EXPECT_EQ(name, "io-0");
}

TEST(KernelExecutor, ThreadsLeaveSignalsToTheApplication) {
  const std::unique_ptr<Poller> poller = std::move(kernel_world().make_poller()).value();
  sigset_t inside;
  std::unique_ptr<Loop> loop =
      std::move(kernel_world().executor().start_loop("signals", *poller, [&] {
        pthread_sigmask(SIG_SETMASK, nullptr, &inside);
        return false;
      })).value();
  loop->join();
  EXPECT_TRUE(sigismember(&inside, SIGINT));
  EXPECT_TRUE(sigismember(&inside, SIGTERM));
  EXPECT_FALSE(sigismember(&inside, SIGSEGV));
  sigset_t outside;
  pthread_sigmask(SIG_SETMASK, nullptr, &outside);
  EXPECT_FALSE(sigismember(&outside, SIGINT));
}

TEST(WorkerPool, PoolOfOneRunsTasksInOrder) {
  std::vector<int> ran;
  std::vector<int> expected;
  std::unique_ptr<WorkerPool> pool = make_pool(1);
  for (int i = 0; i < 1000; ++i) {
    pool->submit([&ran, i] { ran.push_back(i); });
    expected.push_back(i);
  }
  pool.reset();
  EXPECT_EQ(ran, expected);
}

TEST(WorkerPool, DestructionRunsWhatWasSubmittedBefore) {
  std::atomic<int> ran{0};
  {
    std::unique_ptr<WorkerPool> pool = make_pool(3);
    for (int i = 0; i < 5000; ++i) pool->submit([&ran] { ++ran; });
  }
  EXPECT_EQ(ran, 5000);
}

TEST(WorkerPool, TasksMayOwnMoveOnlyThingsAndMaySubmitMore) {
  std::unique_ptr<WorkerPool> pool = make_pool(2);
  std::promise<int> promise;
  pool->submit([&pool, &promise, value = std::make_unique<int>(7)]() mutable {
    pool->submit([&promise, value = std::move(value)] { promise.set_value(*value); });
  });
  EXPECT_EQ(promise.get_future().get(), 7);
}

// Each task waits for all others: with fewer threads at work it hangs.
TEST(WorkerPool, AllThreadsWorkAtOnce) {
  constexpr int kThreads = 4;
  std::atomic<int> arrived{0};
  std::unique_ptr<WorkerPool> pool = make_pool(kThreads);
  for (int round = 1; round <= 200; ++round) {
    for (int i = 0; i < kThreads; ++i) {
      pool->submit([&arrived, round] {
        ++arrived;
        while (arrived < round * kThreads) std::this_thread::yield();
      });
    }
    while (arrived < round * kThreads) std::this_thread::yield();
  }
}

// One task at a time, each after the one before has ended: every wake-up is needed.
TEST(WorkerPool, NoTaskIsForgottenBetweenYieldingAndSleeping) {
  std::unique_ptr<WorkerPool> pool = make_pool(2);
  std::atomic<int> done{0};
  for (int i = 0; i < 20'000; ++i) {
    pool->submit([&done] { ++done; });
    while (done <= i) std::this_thread::yield();
  }
  EXPECT_EQ(done, 20'000);
}

TEST(WorkerPool, ThreadsAreNumberedAndLongNamesKeepTheirNumber) {
  std::promise<std::string> name;
  std::unique_ptr<WorkerPool> pool = make_pool(1, "a-very-long-pool-name");
  pool->submit([&name] { name.set_value(name_of_this_thread()); });
  EXPECT_EQ(name.get_future().get(), "a-very-long-p-0");
}

TEST(WorkerPool, WithoutThreadsIsRefused) {
  for (const int threads : {0, -1}) {
    const auto pool = kernel_world().executor().start_workers("none", threads);
    ASSERT_FALSE(pool.ok());
    EXPECT_EQ(pool.status().code(), Code::kInvalidArgument);
  }
}

TEST(KernelWorld, ClockNeverGoesBack) {
  Time last = kernel_world().now();
  for (int i = 0; i < 1000; ++i) {
    const Time now = kernel_world().now();
    ASSERT_GE(now, last);
    last = now;
  }
}

TEST(KernelWorld, RandomBytesFillTheWholeSpanAndDiffer) {
  std::vector<uint8_t> bytes(1000, 0);
  kernel_world().random_bytes(bytes);
  EXPECT_THAT(std::vector<uint8_t>(bytes.end() - 16, bytes.end()), testing::Not(Each(0)));
  EXPECT_NE(kernel_world().random_u64(), kernel_world().random_u64());
  kernel_world().random_bytes({});
}

}  // namespace
}  // namespace be
