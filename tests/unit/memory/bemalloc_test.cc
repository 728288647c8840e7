// The process-wide pool: its life, and that its calls are the pool's own.
#include "be/memory/bemalloc.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "be/base/log.h"
#include "tests/unit/base/forked_child.h"
#include "tests/unit/memory/fake_device.h"

namespace be {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr size_t kBlock = size_t{64} << 10;
constexpr PoolOptions kOptions = {.block_bytes = kBlock, .cap_bytes = 64 * kBlock};

// Before main, as a static object of a user's might.
struct BeforeMain {
  Status allocation = bemalloc::allocate(100).status();
  std::string logged_by_deallocate;

  BeforeMain() {
    set_log_sink([this](LogLevel, std::string_view line) { logged_by_deallocate = line; });
    bemalloc::deallocate(this);
    set_log_sink({});
  }
};
const BeforeMain kBeforeMain;

class Bemalloc : public ::testing::Test {
 protected:
  void SetUp() override {
    set_log_sink([this](LogLevel, std::string_view line) {
      std::lock_guard lock(mutex_);
      log_.emplace_back(line);
    });
  }
  void TearDown() override {
    if (bemalloc::pool() != nullptr) {
      EXPECT_EQ(bemalloc::shutdown().to_string(), "ok");
    }
    set_log_sink({});
  }
  void init() { ASSERT_EQ(bemalloc::init(kOptions, devices_).to_string(), "ok"); }
  const std::vector<std::string>& log() const { return log_; }

  FakeDevice first_{"fake0"};
  FakeDevice second_{"fake1"};
  const std::array<Device*, 2> devices_ = {&first_, &second_};

 private:
  std::mutex mutex_;
  std::vector<std::string> log_;
};

TEST_F(Bemalloc, AllocatesMemoryThatEveryDeviceOfInitHasRegistered) {
  init();
  for (const size_t size : {1ul, 100ul, 20000ul, 3 * kBlock}) {
    auto* block = static_cast<uint8_t*>(bemalloc::allocate(size).value());
    EXPECT_GE(bemalloc::usable_size(block), size);
    std::memset(block, 1, size);
    for (const uint8_t* inside : {block, block + size / 2, block + size - 1}) {
      const ibv_mr on_first = first_.region_of(bemalloc::region(inside, 0)->lkey).mr;
      const ibv_mr on_second = second_.region_of(bemalloc::region(inside, 1)->lkey).mr;
      EXPECT_LE(on_first.addr, block);
      EXPECT_GE(static_cast<uint8_t*>(on_first.addr) + on_first.length, block + size);
      EXPECT_EQ(on_first.addr, on_second.addr);
    }
    EXPECT_EQ(bemalloc::region(block, 2), nullptr);
    bemalloc::deallocate(block);
  }
  int elsewhere = 0;
  EXPECT_EQ(bemalloc::region(&elsewhere, 0), nullptr);
  bemalloc::deallocate(nullptr);
}

TEST_F(Bemalloc, AllocationsCanBeAligned) {
  init();
  for (size_t alignment = 1; alignment <= kBlock; alignment *= 2) {
    void* block = bemalloc::allocate_aligned(100, alignment).value();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % alignment, 0u);
    bemalloc::deallocate(block);
  }
  EXPECT_EQ(bemalloc::allocate_aligned(100, 24).status().code(), Code::kInvalidArgument);
}

TEST_F(Bemalloc, BuffersComeFromItAndReturnToIt) {
  init();
  Buffer buffer = bemalloc::allocate_buffer(1000).value();
  EXPECT_NE(bemalloc::region(buffer.data(), 0), nullptr);
  EXPECT_EQ(bemalloc::pool()->stats().allocations, 1u);
  buffer.reset();
  EXPECT_EQ(bemalloc::pool()->stats().allocations, 0u);
}

TEST_F(Bemalloc, UseBeforeInitIsANamedError) {
  EXPECT_EQ(kBeforeMain.allocation.code(), Code::kClosed);
  EXPECT_THAT(kBeforeMain.allocation.message(), HasSubstr("be::bemalloc::init"));
  EXPECT_THAT(kBeforeMain.logged_by_deallocate, HasSubstr("never been initialised"));
  EXPECT_EQ(bemalloc::allocate(10).status().code(), Code::kClosed);
  EXPECT_EQ(bemalloc::allocate_aligned(10, 64).status().code(), Code::kClosed);
  EXPECT_EQ(bemalloc::allocate_buffer(10).status().code(), Code::kClosed);
  EXPECT_EQ(bemalloc::shutdown().code(), Code::kClosed);
  int own = 0;
  EXPECT_EQ(bemalloc::region(&own, 0), nullptr);
  EXPECT_EQ(bemalloc::usable_size(&own), 0u);
  EXPECT_EQ(bemalloc::pool(), nullptr);
  bemalloc::deallocate(nullptr);
}

TEST_F(Bemalloc, ASecondInitIsRefusedAndHarmless) {
  init();
  void* block = bemalloc::allocate(100).value();
  const Status refused = bemalloc::init(kOptions, devices_);
  EXPECT_EQ(refused.code(), Code::kAlreadyExists);
  EXPECT_THAT(refused.message(), HasSubstr("initialised already"));
  EXPECT_EQ(bemalloc::init(*bemalloc::pool()).code(), Code::kAlreadyExists);
  EXPECT_NE(bemalloc::region(block, 1), nullptr);
  bemalloc::deallocate(block);
}

TEST_F(Bemalloc, AFailedInitLeavesItUninitialised) {
  EXPECT_EQ(bemalloc::init({.block_bytes = 12345}, devices_).code(), Code::kInvalidArgument);
  const std::array<Device*, 2> with_null = {&first_, nullptr};
  EXPECT_EQ(bemalloc::init(kOptions, with_null).code(), Code::kInvalidArgument);
  const std::vector<Device*> too_many(RegisteredPool::kMaxDevices + 1, &first_);
  EXPECT_EQ(bemalloc::init(kOptions, too_many).code(), Code::kResourceExhausted);
  EXPECT_EQ(bemalloc::pool(), nullptr);
  init();
}

TEST_F(Bemalloc, OfManyThreadsThatInitialiseExactlyOneDoes) {
  std::atomic<int> initialised{0};
  std::atomic<int> refused{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      const Status status = bemalloc::init(kOptions, devices_);
      if (status.ok()) ++initialised;
      if (status.code() == Code::kAlreadyExists) ++refused;
      void* block = bemalloc::allocate(1000).value();  // whoever has initialised it
      std::memset(block, 1, 1000);
      bemalloc::deallocate(block);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(initialised, 1);
  EXPECT_EQ(refused, 7);
}

TEST_F(Bemalloc, WhatOneThreadAllocatedAnotherMayFree) {
  init();
  std::vector<void*> blocks(1000);
  std::thread([&] {
    for (void*& block : blocks) block = bemalloc::allocate(300).value();
  }).join();
  EXPECT_EQ(bemalloc::pool()->stats().allocations, 1000u);
  std::thread([&] {
    for (void* block : blocks) bemalloc::deallocate(block);
  }).join();
  EXPECT_EQ(bemalloc::pool()->stats().allocations, 0u);
}

TEST_F(Bemalloc, ShutdownDeregistersEverythingAndInitMayComeAgain) {
  for (int round = 0; round < 3; ++round) {
    init();
    bemalloc::deallocate(bemalloc::allocate(100).value());
    EXPECT_GT(first_.region_count(), 0u);
    EXPECT_EQ(bemalloc::shutdown().to_string(), "ok");
    EXPECT_EQ(first_.region_count() + second_.region_count(), 0u);
    EXPECT_THAT(bemalloc::allocate(100).status().message(), HasSubstr("shut down"));
  }
  EXPECT_THAT(log(), IsEmpty());
}

TEST_F(Bemalloc, ShutdownCountsWhatIsAliveAndLateFreesDoNoHarm) {
  init();
  auto* small = static_cast<uint8_t*>(bemalloc::allocate(1000).value());
  void* large = bemalloc::allocate(3 * kBlock).value();
  Buffer buffer = bemalloc::allocate_buffer(kBlock).value();
  const size_t bytes =
      bemalloc::usable_size(small) + bemalloc::usable_size(large) + buffer.capacity();
  const Status status = bemalloc::shutdown();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(),
              HasSubstr("3 live allocations of " + std::to_string(bytes) + " bytes"));
  EXPECT_EQ(first_.region_count(), 0u);
  small[999] = 1;  // still mapped
  std::memset(buffer.data(), 2, buffer.size());
  bemalloc::deallocate(small);
  bemalloc::deallocate(large);
  buffer.reset();
  EXPECT_THAT(log(), ElementsAre(HasSubstr("3 live allocations"))) << "the pool's own line";
  init();
}

TEST_F(Bemalloc, ThePoolOfANodeCanBeTheDefault) {
  auto pool = RegisteredPool::create(kOptions).value();
  ASSERT_EQ(bemalloc::init(*pool).to_string(), "ok");
  EXPECT_EQ(bemalloc::pool(), pool.get());
  void* block = bemalloc::allocate(100).value();
  EXPECT_EQ(pool->stats().allocations, 1u);
  EXPECT_EQ(bemalloc::shutdown().to_string(), "ok") << "its owner counts what is alive";
  EXPECT_EQ(bemalloc::pool(), nullptr);
  pool->deallocate(block);
}

TEST_F(Bemalloc, AtTheCapTheErrorNamesTheCap) {
  init();
  void* all = bemalloc::allocate(64 * kBlock).value();
  const Status refused = bemalloc::allocate(10).status();
  EXPECT_EQ(refused.code(), Code::kResourceExhausted);
  EXPECT_THAT(refused.message(), HasSubstr("memory.cap_bytes"));
  bemalloc::deallocate(all);
  EXPECT_EQ(bemalloc::allocate(0).status().code(), Code::kInvalidArgument);
}

TEST_F(Bemalloc, AChildInheritsADeadPoolAndMayInitialiseItsOwn) {
  init();
  auto* block = static_cast<uint8_t*>(bemalloc::allocate(100).value());
  block[99] = 7;
  run_in_child([&] {
    EXPECT_IN_CHILD(block[99] == 7);
    EXPECT_IN_CHILD(bemalloc::allocate(100).status().code() == Code::kClosed);
    EXPECT_IN_CHILD(bemalloc::shutdown().message().find("fork()") != std::string::npos);
    bemalloc::deallocate(block);
    EXPECT_IN_CHILD(bemalloc::init(kOptions, {}).ok());
    EXPECT_IN_CHILD(block[99] == 7);  // readable as before
    void* own = bemalloc::allocate(100).value();
    std::memset(own, 8, 100);
    bemalloc::deallocate(own);
    EXPECT_IN_CHILD(bemalloc::init(kOptions, {}).code() == Code::kAlreadyExists);
    EXPECT_IN_CHILD(bemalloc::shutdown().ok());
  });
  EXPECT_EQ(bemalloc::pool()->stats().allocations, 1u);
  bemalloc::deallocate(block);
}

TEST_F(Bemalloc, AChildForkedWhileOthersInitialiseAndShutDownHangsNowhere) {
  // One pool again and again: AddressSanitizer's malloc does not survive a fork in the middle of
  // it.
  auto pool = RegisteredPool::create(kOptions).value();
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop.load()) {
      ASSERT_TRUE(bemalloc::init(*pool).ok());
      ASSERT_TRUE(bemalloc::shutdown().ok());
    }
  });
  for (int i = 0; i < 50; ++i) {
    run_in_child(
        [] {
          bemalloc::shutdown().ignore();
          EXPECT_IN_CHILD(bemalloc::init(kOptions, {}).ok());
          EXPECT_IN_CHILD(bemalloc::allocate(100).ok());
        },
        ChildEnds::kAtOnce);
  }
  stop = true;
  busy.join();
}

struct AtExit {
  void* block = nullptr;
  ~AtExit() { bemalloc::deallocate(block); }
};

// Static objects are destroyed after main has done whatever it does at its end.
TEST_F(Bemalloc, AStaticObjectMayFreeAtExitWithOrWithoutAShutdown) {
  for (const bool with_shutdown : {false, true}) {
    run_in_child([&] {
      static AtExit at_exit;
      EXPECT_IN_CHILD(bemalloc::init(kOptions, {}).ok());
      at_exit.block = bemalloc::allocate(1000).value();
      EXPECT_IN_CHILD(!with_shutdown || bemalloc::shutdown().code() == Code::kInvalidArgument);
    });
  }
}

}  // namespace
}  // namespace be
