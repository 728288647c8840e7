#include "be/memory/registered_pool.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "tests/unit/memory/fake_device.h"

namespace be {
namespace {

using ::testing::HasSubstr;

constexpr size_t kBlock = size_t{1} << 20;

// A pool with one device; after each test nothing is alive, and the device checks that no
// region outlives the pool.
class RegisteredPoolTest : public ::testing::Test {
 protected:
  void make_pool(size_t cap_bytes) {
    auto made = RegisteredPool::create({.block_bytes = kBlock, .cap_bytes = cap_bytes});
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    pool_ = std::move(*made);
    ASSERT_TRUE(pool_->add_device(&device_).ok());
  }
  void TearDown() override {
    EXPECT_EQ(pool_->stats().allocations, 0u);
    EXPECT_EQ(pool_->stats().live_bytes, 0u);
    EXPECT_EQ(pool_->stats().registered_bytes, device_.registered_bytes());
    pool_.reset();
  }
  void* allocate(size_t size) {
    auto result = pool_->allocate(size);
    EXPECT_TRUE(result.ok()) << size << ": " << result.status().to_string();
    return result.ok() ? *result : nullptr;
  }

  std::vector<void*> allocate_many(size_t count, size_t size) {
    std::vector<void*> all(count);
    for (void*& pointer : all) pointer = allocate(size);
    return all;
  }

  FakeDevice device_;
  std::unique_ptr<RegisteredPool> pool_;
};

TEST_F(RegisteredPoolTest, AllocationsAreAlignedAndUsableToTheirLastByte) {
  make_pool(64 * kBlock);
  for (size_t size :
       {1ul, 15ul, 16ul, 17ul, 63ul, 64ul, 65ul, 100ul, 1000ul, 4096ul, 4097ul, 16384ul, 16385ul,
        100000ul, kBlock - 1, kBlock, kBlock + 1, 3 * kBlock, 10 * kBlock + 5}) {
    void* pointer = allocate(size);
    ASSERT_NE(pointer, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(pointer) % (size >= 64 ? 64 : 16), 0u) << size;
    EXPECT_GE(pool_->usable_size(pointer), size);
    std::memset(pointer, 0xab, pool_->usable_size(pointer));
    pool_->deallocate(pointer);
  }
}

TEST_F(RegisteredPoolTest, EveryPointerInsideAnAllocationFindsTheKeysOfItsRegion) {
  make_pool(64 * kBlock);
  for (size_t size : {40ul, 5000ul, 200000ul, kBlock, 2 * kBlock + 1, 7 * kBlock}) {
    auto* begin = static_cast<uint8_t*>(allocate(size));
    const RegionKeys* keys = pool_->region(begin, 0);
    ASSERT_NE(keys, nullptr);
    EXPECT_EQ(keys->rkey, keys->lkey + FakeDevice::kRkeyOffset);
    const ibv_mr mr = device_.region_of(keys->lkey).mr;
    EXPECT_LE(static_cast<uint8_t*>(mr.addr), begin);
    EXPECT_GE(static_cast<uint8_t*>(mr.addr) + mr.length, begin + size);
    for (size_t offset : {size / 3, size / 2, size - 1}) {
      const RegionKeys* inner = pool_->region(begin + offset, 0);
      ASSERT_NE(inner, nullptr);
      EXPECT_EQ(inner->lkey, keys->lkey) << "an allocation crosses regions";
    }
    pool_->deallocate(begin);
  }
}

TEST_F(RegisteredPoolTest, BlocksAreRegisteredWithTheirPlaceInOneFileForRemoteAccess) {
  make_pool(8 * kBlock);
  auto* first = static_cast<uint8_t*>(allocate(kBlock));
  auto* second = static_cast<uint8_t*>(allocate(kBlock));
  const auto one = device_.region_of(pool_->region(first, 0)->lkey);
  const auto two = device_.region_of(pool_->region(second, 0)->lkey);
  EXPECT_GE(one.backing.fd, 0);
  EXPECT_EQ(one.backing.fd, two.backing.fd);
  EXPECT_EQ(static_cast<int64_t>(two.backing.offset - one.backing.offset), second - first);
  EXPECT_EQ(one.access, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
  pool_->deallocate(first);
  pool_->deallocate(second);
}

TEST_F(RegisteredPoolTest, MemoryThatIsNotOfThePoolHasNoRegion) {
  make_pool(8 * kBlock);
  int elsewhere = 0;
  EXPECT_EQ(pool_->region(&elsewhere, 0), nullptr);
  auto* pointer = static_cast<uint8_t*>(allocate(1));
  EXPECT_NE(pool_->region(pointer, 0), nullptr);
  EXPECT_EQ(pool_->region(pointer, 1), nullptr) << "no such device";
  EXPECT_EQ(pool_->region(pointer + 4 * kBlock, 0), nullptr) << "no such block yet";
  pool_->deallocate(pointer);
}

TEST_F(RegisteredPoolTest, AtTheCapAllocationFailsNamingTheCapAndFreeingHelps) {
  make_pool(4 * kBlock);
  std::vector<void*> all = allocate_many(4, kBlock);
  const auto refused = pool_->allocate(100);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), Code::kResourceExhausted);
  EXPECT_THAT(refused.status().message(), HasSubstr("memory.cap_bytes = 4194304"));
  EXPECT_EQ(pool_->stats().registered_bytes, 4 * kBlock);
  pool_->deallocate(all.back());
  all.back() = allocate(100);
  for (void* pointer : all) pool_->deallocate(pointer);
}

TEST_F(RegisteredPoolTest, WhatOneSizeLeavesAnyOtherSizeCanHave) {
  make_pool(4 * kBlock);
  for (size_t size :
       {16ul, 700ul, 4096ul, 16384ul, 50000ul, kBlock, 2 * kBlock, 4 * kBlock, 16ul}) {
    std::vector<void*> all;
    for (auto next = pool_->allocate(size); next.ok(); next = pool_->allocate(size)) {
      all.push_back(*next);
    }
    // Rounding, and spans that do not divide a block, may waste some.
    EXPECT_GE(all.size() * size, 4 * kBlock * 3 / 4) << size;
    for (void* pointer : all) pool_->deallocate(pointer);
  }
}

TEST_F(RegisteredPoolTest, SizesThatCanNeverBeGivenAreTheCallersFault) {
  make_pool(4 * kBlock);
  EXPECT_EQ(pool_->allocate(0).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(pool_->allocate(4 * kBlock + 1).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(pool_->allocate(SIZE_MAX).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(pool_->allocate_buffer(size_t{1} << 32).status().code(), Code::kInvalidArgument);
}

TEST_F(RegisteredPoolTest, EmptyBlocksAreKeptForTheNextUse) {
  make_pool(16 * kBlock);
  const auto use_all_sizes = [&] {
    for (size_t size : {kBlock, 3 * kBlock, 3 * kBlock - 1, size_t{64}}) {
      pool_->deallocate(allocate(size));
    }
  };
  use_all_sizes();
  const uint64_t registrations = pool_->stats().registrations;
  for (int round = 0; round < 10; ++round) use_all_sizes();
  // The thread may keep a few small objects, and with them a block.
  EXPECT_LE(pool_->stats().registrations, registrations + 1);
  EXPECT_EQ(pool_->stats().deregistrations, 0u);
}

TEST_F(RegisteredPoolTest, WhatNobodyNeedsForAWhileGoesBackToTheSystem) {
  constexpr size_t kKept = size_t{64} << 20;
  make_pool(200 * kBlock);
  const std::vector<void*> all = allocate_many(100, kBlock);
  pool_->release_unused();  // all of it is in use
  for (void* pointer : all) pool_->deallocate(pointer);
  EXPECT_EQ(pool_->stats().registered_bytes, 100 * kBlock);
  pool_->release_unused();  // it was needed since the last call
  EXPECT_EQ(pool_->stats().registered_bytes, 100 * kBlock);
  pool_->release_unused();
  EXPECT_EQ(pool_->stats().registered_bytes, kKept);
  EXPECT_EQ(pool_->stats().peak_registered_bytes, 100 * kBlock);
  EXPECT_EQ(pool_->stats().deregistrations, 36u);
  pool_->release_unused();
  EXPECT_EQ(pool_->stats().registered_bytes, kKept);
}

TEST_F(RegisteredPoolTest, MemoryThatIsNeededNowAndThenIsKept) {
  make_pool(200 * kBlock);
  for (int round = 0; round < 5; ++round) {
    for (void* pointer : allocate_many(100, kBlock)) pool_->deallocate(pointer);
    pool_->release_unused();
  }
  EXPECT_EQ(pool_->stats().registered_bytes, 100 * kBlock);
  EXPECT_EQ(pool_->stats().deregistrations, 0u);
}

TEST_F(RegisteredPoolTest, RunsOfBlocksGoBackAsAWhole) {
  make_pool(200 * kBlock);
  pool_->deallocate(allocate(100 * kBlock));
  pool_->release_unused();
  pool_->release_unused();
  EXPECT_EQ(pool_->stats().registered_bytes, 100 * kBlock);  // more than what is over 64 MiB
  pool_->deallocate(allocate(30 * kBlock));
  pool_->release_unused();
  pool_->release_unused();
  EXPECT_EQ(pool_->stats().registered_bytes, 100 * kBlock);
}

TEST_F(RegisteredPoolTest, MemoryThatWentBackReadsAsZerosWhenItComesAgain) {
  make_pool(200 * kBlock);
  for (int round = 0; round < 2; ++round) {
    auto* run = static_cast<uint8_t*>(allocate(200 * kBlock));
    EXPECT_EQ(run[50 * kBlock], 0);
    run[50 * kBlock] = 1;
    pool_->deallocate(run);
    pool_->deallocate(allocate(kBlock));  // at the cap: the run has to go
  }
}

TEST_F(RegisteredPoolTest, AFailedAllocationsWaiterIsCalledOnceWhenMemoryReturns) {
  make_pool(4 * kBlock);
  void* first = allocate(2 * kBlock);
  void* second = allocate(2 * kBlock);
  int calls = 0;
  ASSERT_FALSE(pool_->allocate(10).ok());
  pool_->on_free([&] { ++calls; });
  const uint64_t cancelled = pool_->on_free([&] { calls += 100; });
  pool_->cancel_on_free(cancelled);
  EXPECT_EQ(calls, 0);
  pool_->deallocate(first);
  EXPECT_EQ(calls, 1);
  pool_->deallocate(second);
  EXPECT_EQ(calls, 1);
}

TEST_F(RegisteredPoolTest, AWaiterThatComesAfterTheMemoryIsCalledAtOnce) {
  make_pool(4 * kBlock);
  void* all = allocate(4 * kBlock);
  ASSERT_FALSE(pool_->allocate(10).ok());
  pool_->deallocate(all);
  int calls = 0;
  pool_->on_free([&] { ++calls; });
  EXPECT_EQ(calls, 1);
}

TEST_F(RegisteredPoolTest, AWaiterMayAllocateAndFailAndWaitAgain) {
  make_pool(4 * kBlock);
  std::vector<void*> blocks = allocate_many(4, kBlock);
  void* wanted = nullptr;
  std::function<void()> attempt = [&] {
    auto result = pool_->allocate(3 * kBlock);
    if (result.ok()) {
      wanted = *result;
    } else {
      pool_->on_free(attempt);
    }
  };
  attempt();
  while (wanted == nullptr && !blocks.empty()) {
    pool_->deallocate(blocks.back());
    blocks.pop_back();
  }
  EXPECT_EQ(blocks.size(), 1u) << "three neighbours sufficed";
  pool_->deallocate(wanted);
  for (void* pointer : blocks) pool_->deallocate(pointer);
}

TEST(RegisteredPool, ImpossibleOptionsAreRefusedByTheirKeys) {
  EXPECT_THAT(RegisteredPool::create({.block_bytes = 100000}).status().message(),
              HasSubstr("memory.block_size_bytes = 100000"));
  EXPECT_THAT(RegisteredPool::create({.block_bytes = 4096}).status().message(),
              HasSubstr("memory.block_size_bytes = 4096"));
  EXPECT_THAT(RegisteredPool::create({.block_bytes = kBlock, .cap_bytes = 1000}).status().message(),
              HasSubstr("memory.cap_bytes = 1000"));
}

TEST(RegisteredPool, TheDefaultCapIsAQuarterOfRam) {
  auto pool = RegisteredPool::create({});
  ASSERT_TRUE(pool.ok());
  const size_t ram = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * 4096;
  EXPECT_LE((*pool)->stats().cap_bytes, ram / 4);
  EXPECT_GT((*pool)->stats().cap_bytes, ram / 4 - (size_t{4} << 20));
}

TEST(RegisteredPool, APoolDestroyedTooEarlySurvivesLateFrees) {
  FakeDevice device;
  auto pool = std::move(*RegisteredPool::create({.block_bytes = kBlock, .cap_bytes = 8 * kBlock}));
  ASSERT_TRUE(pool->add_device(&device).ok());
  Buffer late = std::move(*pool->allocate_buffer(5000));
  bool released = false;
  std::vector<uint8_t> users(100);
  Buffer adopted = std::move(*pool->adopt(users.data(), users.size(), [&] { released = true; }));
  ::testing::internal::CaptureStderr();
  pool.reset();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("2 live allocations of 5220"));
  EXPECT_EQ(device.region_count(), 0u);
  late.data()[0] = 1;
  late.reset();
  adopted.reset();
  EXPECT_TRUE(released);
}

TEST_F(RegisteredPoolTest, AlignedAllocationsAreAlignedAndNothingIsLost) {
  make_pool(16 * kBlock);
  for (size_t alignment = 1; alignment <= kBlock; alignment *= 2) {
    for (const size_t size : {size_t{1}, size_t{100}, size_t{5000}, size_t{100000}, kBlock}) {
      auto made = pool_->allocate_aligned(size, alignment);
      ASSERT_TRUE(made.ok()) << made.status().to_string();
      EXPECT_EQ(reinterpret_cast<uintptr_t>(*made) % alignment, 0u) << size << " " << alignment;
      EXPECT_GE(pool_->usable_size(*made), size);
      std::memset(*made, 1, size);
      pool_->deallocate(*made);
    }
  }
  for (const size_t alignment : {size_t{0}, size_t{3}, 2 * kBlock}) {
    EXPECT_THAT(pool_->allocate_aligned(1, alignment).status().message(),
                HasSubstr(fmt::format("an alignment of {} bytes", alignment)));
  }
}

TEST_F(RegisteredPoolTest, StatisticsTellOfEachSizeClass) {
  make_pool(16 * kBlock);
  const std::vector<void*> held = allocate_many(10, 1000);
  pool_->deallocate(allocate(1000));
  const auto of_1024 = [&] {
    for (const SizeClassStats& stats : pool_->size_class_stats()) {
      if (stats.object_bytes == 1024) return stats;
    }
    return SizeClassStats{};
  };
  EXPECT_EQ(of_1024().live_objects, 10u);
  EXPECT_GE(of_1024().cached_objects, 1u);
  EXPECT_GE(of_1024().span_bytes, 11 * 1024u);
  EXPECT_EQ(pool_->stats().live_bytes, 10 * 1024u);
  EXPECT_EQ(pool_->stats().cached_bytes, pool_->stats().registered_bytes - 10 * 1024u);
  for (void* pointer : held) pool_->deallocate(pointer);
  EXPECT_EQ(of_1024().live_objects, 0u);
}

TEST(RegisteredPool, AnAlignedPartOfAShortRunIsFoundBeforeTheCapIsReported) {
  constexpr size_t kSmallBlock = size_t{64} << 10;
  auto pool =
      std::move(*RegisteredPool::create({.block_bytes = kSmallBlock, .cap_bytes = kSmallBlock}));
  void* first = *pool->allocate_aligned(kSmallBlock / 2, kSmallBlock / 2);
  auto second = pool->allocate_aligned(kSmallBlock / 2, kSmallBlock / 2);
  ASSERT_TRUE(second.ok()) << second.status().to_string();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(*second) % (kSmallBlock / 2), 0u);
  pool->deallocate(first);
  pool->deallocate(*second);
}

TEST(RegisteredPool, WhatTheGuardWatchesMakesRoomForAdoptedMemory) {
  constexpr size_t kSmallBlock = size_t{64} << 10;
  auto pool = std::move(*RegisteredPool::create(
      {.block_bytes = kSmallBlock, .cap_bytes = 8 * kSmallBlock, .guard = GuardMode::kReport}));
  for (int i = 0; i < 20; ++i) pool->deallocate(*pool->allocate(30000));
  std::vector<uint8_t> users(8 * kSmallBlock);
  const auto adopted = pool->adopt(users.data(), users.size(), [] {});
  EXPECT_TRUE(adopted.ok()) << adopted.status().to_string();
}

size_t free_huge_pages() {
  std::ifstream meminfo("/proc/meminfo");
  for (std::string word; meminfo >> word;) {
    if (size_t count = 0; word == "HugePages_Free:" && meminfo >> count) return count;
  }
  return 0;
}

// On a machine without reserved huge pages the error is seen, on others the memory.
TEST(RegisteredPool, ReservedHugePagesAreUsedOrTheirShortageIsNamed) {
  constexpr size_t kHugeBlock = size_t{4} << 20;
  auto pool = RegisteredPool::create(
      {.block_bytes = kHugeBlock, .cap_bytes = 4 * kHugeBlock, .huge_pages = HugePages::kReserved});
  ASSERT_TRUE(pool.ok()) << pool.status().to_string();
  const size_t before = free_huge_pages();
  auto made = (*pool)->allocate(kHugeBlock);
  if (before < 2) {
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.status().code(), Code::kResourceExhausted);
    EXPECT_THAT(made.status().message(), HasSubstr("vm.nr_hugepages"));
    return;
  }
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  std::memset(*made, 1, kHugeBlock);
  EXPECT_EQ(free_huge_pages(), before - 2);
  (*pool)->deallocate(*made);
  pool->reset();
  EXPECT_EQ(free_huge_pages(), before);
}

TEST(RegisteredPool, ReservedHugePagesNeedBlocksOfThem) {
  const auto pool = RegisteredPool::create(
      {.block_bytes = 64 << 10, .cap_bytes = 1 << 20, .huge_pages = HugePages::kReserved});
  EXPECT_THAT(pool.status().message(), HasSubstr("memory.huge_pages"));
}

TEST(RegisteredPool, GuardModeNamesMisuseAndGivesMemoryBackToThoseWhoWait) {
  constexpr size_t kSmallBlock = size_t{64} << 10;
  auto pool = std::move(*RegisteredPool::create(
      {.block_bytes = kSmallBlock, .cap_bytes = 4 * kSmallBlock, .guard = GuardMode::kReport}));
  auto* memory = static_cast<uint8_t*>(*pool->allocate(100));
  EXPECT_EQ(pool->usable_size(memory), 100u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 64, 0u);
  EXPECT_EQ(pool->stats().live_bytes, 100u);
  memory[100] = 1;  // one byte too many
  pool->deallocate(memory);
  EXPECT_EQ(pool->stats().guard_faults, 1u);
  pool->deallocate(memory);
  EXPECT_EQ(pool->stats().guard_faults, 2u);

  Buffer half = std::move(*pool->allocate_buffer(2 * kSmallBlock));
  ASSERT_FALSE(pool->allocate(3 * kSmallBlock).ok());
  bool told = false;
  pool->on_free([&] { told = true; });
  half.reset();
  EXPECT_TRUE(told);
  pool->deallocate(*pool->allocate(3 * kSmallBlock));
  EXPECT_EQ(pool->stats().allocations, 0u);
  EXPECT_EQ(pool->stats().guard_faults, 2u);
}

}  // namespace
}  // namespace be
