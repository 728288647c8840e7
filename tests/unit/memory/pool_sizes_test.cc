// Every size from one byte to two gigabytes and beyond; and what a pool says of what is left.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "be/base/log.h"
#include "be/memory/registered_pool.h"
#include "tests/unit/memory/fake_device.h"

namespace be {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr size_t kBlock = size_t{4} << 20;  // the default
constexpr size_t kGiB = size_t{1} << 30;

size_t available_bytes() {
  std::ifstream file("/proc/meminfo");
  for (std::string name; file >> name; file.ignore(100, '\n')) {
    size_t kilobytes = 0;
    if (name == "MemAvailable:" && file >> kilobytes) return kilobytes << 10;
  }
  return 0;
}

class PoolSizes : public ::testing::Test {
 protected:
  void make_pool(size_t cap_bytes) {
    pool_ = RegisteredPool::create({.block_bytes = kBlock, .cap_bytes = cap_bytes}).value();
    ASSERT_TRUE(pool_->add_device(&device_).ok());
  }
  void TearDown() override {
    if (pool_ == nullptr) return;
    EXPECT_EQ(pool_->stats().allocations, 0u);
    EXPECT_EQ(pool_->stats().registered_bytes, device_.registered_bytes());
  }
  uint8_t* allocate(size_t size) {
    auto made = pool_->allocate(size);
    EXPECT_TRUE(made.ok()) << size << " bytes: " << made.status().to_string();
    return made.ok() ? static_cast<uint8_t*>(*made) : nullptr;
  }
  uint32_t key_at(const uint8_t* pointer) const {
    const RegionKeys* keys = pool_->region(pointer, 0);
    EXPECT_NE(keys, nullptr);
    return keys != nullptr ? keys->lkey : 0;
  }
  // Writes its ends; all of it is under one key.
  void check(uint8_t* memory, size_t size) {
    ASSERT_NE(memory, nullptr);
    EXPECT_GE(pool_->usable_size(memory), size);
    memory[0] = 0x11;
    memory[size - 1] = 0x22;
    EXPECT_TRUE(size == 1 || (memory[0] == 0x11 && memory[size - 1] == 0x22));
    EXPECT_EQ(key_at(memory), key_at(memory + size - 1)) << size;
    EXPECT_EQ(key_at(memory), key_at(memory + size / 2)) << size;
    const ibv_mr region = device_.region_of(key_at(memory)).mr;
    EXPECT_LE(region.addr, memory);
    EXPECT_GE(static_cast<uint8_t*>(region.addr) + region.length, memory + size);
  }

  FakeDevice device_;
  std::unique_ptr<RegisteredPool> pool_;
};

TEST_F(PoolSizes, EachSmallSizeIsUsableToItsLastByteAndOverlapsNoOther) {
  make_pool(4 * kBlock);
  std::vector<uint8_t*> all;
  for (size_t size = 1; size <= 64; ++size) {
    all.push_back(allocate(size));
    check(all.back(), size);
    std::memset(all.back(), static_cast<int>(size), size);
  }
  for (size_t size = 1; size <= 64; ++size) {
    const std::vector<uint8_t> expected(size, static_cast<uint8_t>(size));
    EXPECT_EQ(std::memcmp(all[size - 1], expected.data(), size), 0) << size;
    pool_->deallocate(all[size - 1]);
  }
}

TEST_F(PoolSizes, AroundABlockAnAllocationIsUnderOneRegion) {
  make_pool(16 * kBlock);
  for (const size_t blocks : {1, 2, 3, 7}) {
    for (const size_t size : {blocks * kBlock - 1, blocks * kBlock, blocks * kBlock + 1}) {
      uint8_t* memory = allocate(size);
      check(memory, size);
      pool_->deallocate(memory);
    }
  }
}

TEST_F(PoolSizes, TheWholeCapIsOneAllocationAndOneByteMoreIsTheCallersFault) {
  make_pool(16 * kBlock);
  uint8_t* memory = allocate(16 * kBlock);
  check(memory, 16 * kBlock);
  pool_->deallocate(memory);
  const Status refused = pool_->allocate(16 * kBlock + 1).status();
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_THAT(refused.message(), AllOf(HasSubstr(std::to_string(16 * kBlock + 1)),
                                       HasSubstr("memory.cap_bytes = 67108864")));
}

// The pool fills its blocks with pages, so this takes real memory.
TEST_F(PoolSizes, TwoGigabytesAreUsableUnderOneRegionAndThenForOthers) {
  if (available_bytes() < 4 * kGiB) {
    GTEST_SKIP() << "needs 4 GiB of available memory, there are " << available_bytes();
  }
  make_pool(2 * kGiB);
  uint8_t* memory = allocate(2 * kGiB);
  check(memory, 2 * kGiB);
  EXPECT_EQ(pool_->allocate(1).status().code(), Code::kResourceExhausted);
  EXPECT_EQ(pool_->allocate(2 * kGiB + 1).status().code(), Code::kInvalidArgument);
  pool_->deallocate(memory);
  std::vector<uint8_t*> others;
  for (const size_t size : {size_t{1}, kBlock, 30 * kBlock}) {
    others.push_back(allocate(size));
    check(others.back(), size);
  }
  for (uint8_t* other : others) pool_->deallocate(other);
  EXPECT_EQ(pool_->stats().peak_registered_bytes, 2 * kGiB);
}

TEST_F(PoolSizes, ABufferHoldsTwoGigabytesAndNoMoreThanFour) {
  if (available_bytes() < 4 * kGiB) {
    GTEST_SKIP() << "needs 4 GiB of available memory, there are " << available_bytes();
  }
  make_pool(5 * kGiB);  // addresses; pages are taken for what is allocated
  Buffer buffer = pool_->allocate_buffer(2 * kGiB + 1).value();
  EXPECT_EQ(buffer.size(), 2 * kGiB + 1);
  EXPECT_EQ(buffer.capacity(), 2 * kGiB + kBlock);
  check(buffer.data(), buffer.size());
  buffer.drop_front(2 * kGiB);
  EXPECT_EQ(buffer.size(), 1u);
  EXPECT_EQ(buffer.data()[0], 0x22);
  buffer.reset();
  const Status refused = pool_->allocate_buffer(4 * kGiB).status();
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("a Buffer of 4294967296 bytes is larger than"));
}

TEST_F(PoolSizes, APoolThatIsDestroyedTooEarlyLogsHowManyAllocationsAndBytesAreLeft) {
  std::vector<std::string> log;
  set_log_sink([&](LogLevel level, std::string_view line) {
    EXPECT_EQ(level, LogLevel::kError);
    log.emplace_back(line);
  });
  make_pool(16 * kBlock);
  std::vector<uint8_t*> left = {allocate(100), allocate(100), allocate(20000),
                                allocate(kBlock + 1)};
  Buffer buffer = pool_->allocate_buffer(1000).value();
  size_t bytes = pool_->usable_size(buffer.data());
  for (const uint8_t* memory : left) bytes += pool_->usable_size(memory);
  pool_->deallocate(allocate(300));  // not left
  pool_.reset();
  EXPECT_THAT(log, ElementsAre(AllOf(HasSubstr("destroyed with 5 live allocations"),
                                     HasSubstr("of " + std::to_string(bytes) + " bytes"))));
  EXPECT_EQ(device_.region_count(), 0u);
  std::memset(left[3], 1, kBlock + 1);  // still mapped
  buffer.reset();
  set_log_sink({});
}

TEST_F(PoolSizes, APoolWithNothingLeftSaysNothing) {
  std::vector<std::string> log;
  set_log_sink([&](LogLevel, std::string_view line) { log.emplace_back(line); });
  make_pool(16 * kBlock);
  for (const size_t size : {100ul, 20000ul, kBlock + 1}) pool_->deallocate(allocate(size));
  pool_.reset();
  EXPECT_THAT(log, IsEmpty());
  set_log_sink({});
}

}  // namespace
}  // namespace be
