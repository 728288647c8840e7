// Memory of the pool that becomes a Buffer without a copy: taken over, or lent by its owner.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "be/memory/registered_pool.h"
#include "tests/unit/base/forked_child.h"
#include "tests/unit/memory/fake_device.h"

namespace be {
namespace {

using ::testing::HasSubstr;

constexpr size_t kBlock = size_t{64} << 10;

class BufferFrom : public ::testing::Test {
 protected:
  BufferFrom()
      : pool_(RegisteredPool::create({.block_bytes = kBlock, .cap_bytes = 64 * kBlock}).value()) {
    EXPECT_TRUE(pool_->add_device(&device_).ok());
  }
  void TearDown() override { EXPECT_EQ(alive(), 0u); }
  uint8_t* allocate(size_t size) { return static_cast<uint8_t*>(pool_->allocate(size).value()); }
  uint64_t alive() const { return pool_->stats().allocations; }
  Code code_of(void* memory, size_t size, std::function<void()> release = {}) {
    return pool_->buffer_from(memory, size, std::move(release)).status().code();
  }

  FakeDevice device_;
  std::unique_ptr<RegisteredPool> pool_;
};

TEST_F(BufferFrom, AnAllocationBecomesABufferThatFreesIt) {
  for (const size_t size : {10ul, 1000ul, 20000ul, 3 * kBlock + 1}) {
    uint8_t* memory = allocate(size);
    const size_t usable = pool_->usable_size(memory);
    Buffer buffer = pool_->buffer_from(memory, size).value();
    EXPECT_EQ(buffer.data(), memory);
    EXPECT_EQ(buffer.size(), size);
    EXPECT_EQ(buffer.capacity(), usable) << "may grow into what was allocated";
    Buffer slice = buffer.share(1, 5);
    buffer.reset();
    EXPECT_EQ(alive(), 1u);
    slice.reset();
    EXPECT_EQ(alive(), 0u);
  }
}

TEST_F(BufferFrom, LentMemoryIsReleasedWithTheLastHandleAndNotFreedByThePool) {
  uint8_t* memory = allocate(1000);
  int released = 0;
  Buffer buffer = pool_->buffer_from(memory + 100, 500, [&] { ++released; }).value();
  EXPECT_EQ(buffer.data(), memory + 100);
  EXPECT_EQ(buffer.capacity(), 500u) << "its neighbours are not lent";
  EXPECT_EQ(alive(), 1u) << "counted once";
  EXPECT_EQ(device_.registered_bytes(), kBlock) << "registered once";
  Buffer slice = buffer.share(10, 10);
  buffer.reset();
  EXPECT_EQ(released, 0);
  std::thread([&] { slice.reset(); }).join();
  EXPECT_EQ(released, 1);
  EXPECT_EQ(alive(), 1u);
  pool_->deallocate(memory);
}

TEST_F(BufferFrom, OneAllocationCanBeLentInSeveralParts) {
  uint8_t* memory = allocate(1000);
  int released = 0;
  Buffer first = pool_->buffer_from(memory, 500, [&] { ++released; }).value();
  Buffer second = pool_->buffer_from(memory + 500, 500, [&] { ++released; }).value();
  first.reset();
  second.reset();
  EXPECT_EQ(released, 2);
  pool_->deallocate(memory);
}

TEST_F(BufferFrom, MemoryThatIsNotOfThePoolIsRefusedByName) {
  char own[100];
  const auto never = [] { ADD_FAILURE() << "released though refused"; };
  EXPECT_EQ(code_of(own, 100), Code::kInvalidArgument);
  EXPECT_EQ(code_of(own, 100, never), Code::kInvalidArgument);
  EXPECT_EQ(code_of(nullptr, 1), Code::kInvalidArgument);
  Buffer adopted = pool_->adopt(own, sizeof(own), [] {}).value();
  EXPECT_EQ(code_of(own, 100, never), Code::kInvalidArgument) << "adopted is not allocated";
  EXPECT_THAT(pool_->buffer_from(own, 100).status().message(), HasSubstr("no part of one"));
}

TEST_F(BufferFrom, WhatExceedsTheAllocationIsRefused) {
  uint8_t* memory = allocate(100);
  const auto never = [] { ADD_FAILURE() << "released though refused"; };
  EXPECT_EQ(code_of(memory, 0), Code::kInvalidArgument);
  EXPECT_EQ(code_of(memory, pool_->usable_size(memory) + 1), Code::kInvalidArgument);
  EXPECT_EQ(code_of(memory, 2 * kBlock, never), Code::kInvalidArgument) << "crosses regions";
  EXPECT_EQ(code_of(memory, 1000 * kBlock, never), Code::kInvalidArgument) << "leaves the pool";
  EXPECT_EQ(code_of(memory, SIZE_MAX, never), Code::kInvalidArgument);
  EXPECT_EQ(alive(), 1u);
  pool_->deallocate(memory);
}

TEST_F(BufferFrom, InAChildItIsANamedErrorAndWhatWasLentIsReleased) {
  uint8_t* memory = allocate(1000);
  int released = 0;
  Buffer lent = pool_->buffer_from(memory, 1000, [&] { ++released; }).value();
  run_in_child([&] {
    EXPECT_IN_CHILD(code_of(memory, 1000) == Code::kClosed);
    lent.reset();
    EXPECT_IN_CHILD(released == 1);
  });
  EXPECT_EQ(released, 0);
  lent.reset();
  pool_->deallocate(memory);
}

}  // namespace
}  // namespace be
