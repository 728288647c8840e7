#include "be/memory/buffer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "be/memory/registered_pool.h"
#include "tests/unit/memory/fake_device.h"

namespace be {
namespace {

class BufferTest : public ::testing::Test {
 protected:
  BufferTest()
      : pool_(std::move(*RegisteredPool::create({.block_bytes = 1 << 20, .cap_bytes = 8 << 20}))) {
    EXPECT_TRUE(pool_->add_device(&device_).ok());
  }
  void TearDown() override { EXPECT_EQ(alive(), 0u); }
  Buffer make(size_t size) { return std::move(*pool_->allocate_buffer(size)); }
  uint64_t alive() const { return pool_->stats().allocations; }

  FakeDevice device_;
  std::unique_ptr<RegisteredPool> pool_;
};

TEST_F(BufferTest, OwnsItsMemoryUntilTheEnd) {
  {
    Buffer buffer = make(100);
    EXPECT_TRUE(buffer);
    EXPECT_EQ(buffer.size(), 100u);
    EXPECT_GE(buffer.capacity(), 100u);
    EXPECT_EQ(alive(), 1u);
  }
  EXPECT_EQ(alive(), 0u);
}

TEST_F(BufferTest, MovingLeavesNothingBehind) {
  Buffer first = make(100);
  uint8_t* data = first.data();
  Buffer second = std::move(first);
  EXPECT_FALSE(first);  // NOLINT(bugprone-use-after-move): the state after a move is defined
  EXPECT_TRUE(first.empty());
  EXPECT_EQ(second.data(), data);
  second = make(50);
  EXPECT_EQ(alive(), 1u) << "assignment frees what was there";
  second.reset();
  EXPECT_FALSE(second);
  EXPECT_EQ(second.data(), nullptr);
}

TEST_F(BufferTest, NarrowingTheViewKeepsTheMemory) {
  Buffer buffer = make(1000);
  uint8_t* data = buffer.data();
  const size_t capacity = buffer.capacity();
  buffer.drop_front(24);
  buffer.resize(10);
  EXPECT_EQ(buffer.data(), data + 24);
  EXPECT_EQ(buffer.size(), 10u);
  EXPECT_EQ(buffer.capacity(), capacity - 24);
  buffer.resize(buffer.capacity());
  std::memset(buffer.data(), 7, buffer.size());
  buffer.reset();
  EXPECT_EQ(alive(), 0u);
}

TEST_F(BufferTest, SharedMemoryReturnsWithItsLastHandle) {
  Buffer whole = make(4096);
  std::memset(whole.data(), 0, 4096);
  whole.data()[1000] = 42;
  whole.drop_front(100);
  Buffer slice = whole.share(800, 200);
  EXPECT_EQ(slice.size(), 200u);
  EXPECT_EQ(slice.capacity(), 200u) << "a slice cannot grow over its neighbours";
  EXPECT_EQ(slice.data()[100], 42);
  Buffer part = slice.share(100, 1);
  EXPECT_EQ(alive(), 1u);
  whole.reset();
  slice.reset();
  EXPECT_EQ(alive(), 1u);
  EXPECT_EQ(part.data()[0], 42);
  part.reset();
  EXPECT_EQ(alive(), 0u);
}

TEST_F(BufferTest, SharingNothingGivesNothing) {
  Buffer nothing;
  EXPECT_FALSE(nothing.share(0, 0));
}

TEST_F(BufferTest, AdoptedMemoryIsRegisteredUntilItsLastHandleIsGone) {
  std::vector<uint8_t> users(10000);
  size_t regions_at_release = 99;
  Buffer adopted = std::move(*pool_->adopt(users.data(), users.size(),
                                           [&] { regions_at_release = device_.region_count(); }));
  EXPECT_EQ(adopted.data(), users.data());
  EXPECT_EQ(adopted.size(), users.size());
  EXPECT_EQ(pool_->stats().registered_bytes, users.size());
  for (size_t offset : {0, 5000, 9999}) {
    const RegionKeys* keys = pool_->region(&users[offset], 0);
    ASSERT_NE(keys, nullptr);
    EXPECT_EQ(device_.region_of(keys->lkey).mr.addr, users.data());
    EXPECT_EQ(device_.region_of(keys->lkey).backing.fd, -1);
  }
  EXPECT_EQ(pool_->region(users.data() + users.size(), 0), nullptr);
  Buffer slice = adopted.share(10, 10);
  adopted.reset();
  EXPECT_EQ(regions_at_release, 99u);
  slice.reset();
  EXPECT_EQ(regions_at_release, 0u) << "deregistered before it is released";
  EXPECT_EQ(pool_->region(users.data(), 0), nullptr);
  EXPECT_EQ(pool_->stats().registered_bytes, 0u);
}

TEST_F(BufferTest, MemoryIsAdoptedOnceAndOnlyBelowTheCap) {
  std::vector<uint8_t> users(10000);
  const auto never = [] { ADD_FAILURE() << "released though not adopted"; };
  Buffer adopted = std::move(*pool_->adopt(users.data() + 100, 100, [] {}));
  EXPECT_EQ(pool_->adopt(users.data() + 199, 100, never).status().code(), Code::kAlreadyExists);
  EXPECT_EQ(pool_->adopt(users.data(), 101, never).status().code(), Code::kAlreadyExists);
  EXPECT_TRUE(pool_->adopt(users.data(), 100, [] {}).ok());
  EXPECT_TRUE(pool_->adopt(users.data() + 200, 100, [] {}).ok());
  Buffer own = make(100);
  EXPECT_EQ(pool_->adopt(own.data(), 100, never).status().code(), Code::kAlreadyExists);
  EXPECT_EQ(pool_->adopt(users.data(), 0, never).status().code(), Code::kInvalidArgument);
  const auto too_much = pool_->adopt(users.data(), 9 << 20, never);  // never touched
  EXPECT_EQ(too_much.status().code(), Code::kResourceExhausted);
  EXPECT_THAT(too_much.status().message(), ::testing::HasSubstr("memory.cap_bytes"));
}

TEST_F(BufferTest, AMessageIsItsHeaderAndItsPartsInOrder) {
  Message message(make(10));
  message.append(Buffer());
  message.append(make(20));
  message.set_header("head", 4);
  EXPECT_EQ(message.count, 2);
  EXPECT_EQ(message.bytes(), 34u);
  Message moved = std::move(message);
  EXPECT_EQ(moved.bytes(), 34u);
  EXPECT_EQ(std::memcmp(moved.header, "head", 4), 0);
  EXPECT_EQ(moved.parts[1].size(), 20u);
}

}  // namespace
}  // namespace be
