// fork(): in the child a pool is dead, but what it handed out can be read; the parent goes on.
#include <gmock/gmock.h>
#include <sys/mman.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "be/memory/registered_pool.h"
#include "tests/unit/base/forked_child.h"
#include "tests/unit/memory/fake_device.h"

namespace be {
namespace {

constexpr size_t kBlock = size_t{64} << 10;

class PoolFork : public ::testing::Test {
 protected:
  void SetUp() override {
    pool_ = RegisteredPool::create({.block_bytes = kBlock, .cap_bytes = 256 * kBlock}).value();
    ASSERT_TRUE(pool_->add_device(&device_).ok());
  }
  void TearDown() override {
    EXPECT_EQ(pool_->stats().allocations, 0u);
    EXPECT_EQ(pool_->stats().registered_bytes, device_.registered_bytes());
    pool_.reset();
  }
  Buffer filled(size_t size, uint8_t value) {
    Buffer buffer = pool_->allocate_buffer(size).value();
    std::memset(buffer.data(), value, size);
    return buffer;
  }
  static bool holds(const Buffer& buffer, uint8_t value) {
    for (const uint8_t byte : buffer.bytes()) {
      if (byte != value) return false;
    }
    return true;
  }

  FakeDevice device_;
  std::unique_ptr<RegisteredPool> pool_;
};

// Every size goes another way through the pool: cached, page run, block run.
constexpr size_t kSizes[] = {16, 1000, 20000, 3 * kBlock};

TEST_F(PoolFork, InheritedBuffersAreReadAndDroppedAndTheParentsStayAsTheyAre) {
  std::vector<Buffer> buffers;
  for (const size_t size : kSizes) buffers.push_back(filled(size, 7));
  Buffer shared = buffers.back().share(10, 100);
  const PoolStats before = pool_->stats();
  run_in_child([&] {
    for (const Buffer& buffer : buffers) EXPECT_IN_CHILD(holds(buffer, 7));
    Buffer another = shared.share(0, 10);
    EXPECT_IN_CHILD(holds(another, 7));
    another.reset();
    shared.reset();
    buffers.clear();
  });
  EXPECT_EQ(pool_->stats().allocations, before.allocations);
  EXPECT_EQ(pool_->stats().live_bytes, before.live_bytes);
  for (const Buffer& buffer : buffers) EXPECT_TRUE(holds(buffer, 7));
  // What the child dropped is not handed out again here.
  std::vector<Buffer> more;
  for (const size_t size : kSizes) more.push_back(filled(size, 9));
  for (const Buffer& buffer : buffers) EXPECT_TRUE(holds(buffer, 7));
}

TEST_F(PoolFork, EveryOtherCallIsANamedErrorInTheChild) {
  const Buffer kept = filled(1000, 1);
  void* large = pool_->allocate(20000).value();
  run_in_child([&] {
    for (const size_t size : kSizes) {
      const auto memory = pool_->allocate(size);
      EXPECT_IN_CHILD(memory.status().code() == Code::kClosed);
      EXPECT_IN_CHILD(memory.status().message().find("fork()") != std::string::npos);
      EXPECT_IN_CHILD(pool_->allocate_buffer(size).status().code() == Code::kClosed);
    }
    FakeDevice another;
    EXPECT_IN_CHILD(pool_->add_device(&another).status().code() == Code::kClosed);
    char own[64];
    bool released = false;
    EXPECT_IN_CHILD(pool_->adopt(own, sizeof(own), [&] { released = true; }).status().code() ==
                    Code::kClosed);
    EXPECT_IN_CHILD(!released);
    EXPECT_IN_CHILD(pool_->on_free([] { _exit(1); }) == 0);
    pool_->cancel_on_free(1);
    EXPECT_IN_CHILD(pool_->stats().allocations == 0 && pool_->stats().registered_bytes == 0);
    EXPECT_IN_CHILD(pool_->usable_size(large) == 0);
    EXPECT_IN_CHILD(pool_->region(own, 0) == nullptr);
    pool_->deallocate(large);
    pool_.reset();
    EXPECT_IN_CHILD(holds(kept, 1));  // its memory stays readable
  });
  EXPECT_EQ(pool_->stats().allocations, 2u);
  EXPECT_GE(pool_->usable_size(large), 20000u);
  pool_->deallocate(large);
}

TEST_F(PoolFork, AdoptedMemoryIsReleasedInTheChildAndInTheParentEachForItself) {
  char own[4096];
  int released = 0;
  Buffer buffer = pool_->adopt(own, sizeof(own), [&] { ++released; }).value();
  run_in_child([&] {
    buffer.reset();
    EXPECT_IN_CHILD(released == 1);
  });
  EXPECT_EQ(released, 0);
  EXPECT_EQ(pool_->stats().allocations, 1u);
  buffer.reset();
  EXPECT_EQ(released, 1);
}

// A defect of the child's program, which shall not become one of the parent's data.
TEST_F(PoolFork, WritingToAnInheritedBufferEndsTheChildAndNotTheParentsData) {
  Buffer buffer = filled(1000, 5);
  const pid_t pid = start_child([&] {
    signal(SIGSEGV, SIG_DFL);  // a sanitizer would only report it
    std::memset(buffer.data(), 6, buffer.size());
  });
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGSEGV);
  EXPECT_TRUE(holds(buffer, 5));
}

// Each thread is somewhere else in the pool when the process forks: in its cache, under a lock,
// draining the caches of all, ending.
TEST_F(PoolFork, AChildOfABusyPoolHangsNowhereAndMayHaveAPoolOfItsOwn) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> busy;
  for (uint32_t i = 0; i < 2; ++i) {
    busy.emplace_back([&, i] {
      std::vector<Buffer> held;
      for (uint32_t round = i; !stop.load(); ++round) {
        auto made = pool_->allocate_buffer(kSizes[round % 4] * (1 + round % 3));
        if (made.ok()) {
          held.push_back(*std::move(made));
        } else {
          held.clear();  // at the cap: the failing allocation has drained all caches
        }
      }
    });
  }
  busy.emplace_back([&] {
    while (!stop.load()) {
      std::thread([&] { pool_->allocate_buffer(100).status().ignore(); }).join();
    }
  });
  Buffer inherited = filled(20000, 3);
  for (int i = 0; i < 100; ++i) {
    run_in_child([&] {
      EXPECT_IN_CHILD(holds(inherited, 3));
      EXPECT_IN_CHILD(pool_->allocate(100).status().code() == Code::kClosed);
      inherited.reset();
      pool_.reset();
      auto own = RegisteredPool::create({.block_bytes = kBlock, .cap_bytes = 4 * kBlock});
      EXPECT_IN_CHILD(own.ok());
      Buffer buffer = (*own)->allocate_buffer(1000).value();
      std::memset(buffer.data(), 4, buffer.size());
      EXPECT_IN_CHILD(holds(buffer, 4) && (*own)->stats().allocations == 1);
      buffer.reset();
      EXPECT_IN_CHILD((*own)->stats().allocations == 0);
    });
    EXPECT_TRUE(holds(inherited, 3));
  }
  stop = true;
  for (std::thread& thread : busy) thread.join();
  inherited.reset();
}

}  // namespace
}  // namespace be
