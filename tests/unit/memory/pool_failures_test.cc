// Every step of making registered memory fails once: a Status says so, nothing is left behind,
// and the pool works on.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cerrno>
#include <memory>
#include <string>
#include <vector>

#include "be/memory/registered_pool.h"
#include "be/memory/system_calls.h"
#include "tests/unit/memory/fake_device.h"

namespace be {
namespace {

using ::testing::HasSubstr;

constexpr size_t kBlock = size_t{1} << 20;
constexpr PoolOptions kOptions = {.block_bytes = kBlock, .cap_bytes = 8 * kBlock};

// The kernel's system calls, of which one can be made to fail.
class BrokenSystemCalls : public memory::SystemCalls {
 public:
  std::string broken;  // name of the call that fails
  int error_number = 0;

  int memfd_create(const char* name, unsigned flags) override {
    return fails("memfd_create") ? -1 : SystemCalls::memfd_create(name, flags);
  }
  int ftruncate(int fd, off_t length) override {
    return fails("ftruncate") ? -1 : SystemCalls::ftruncate(fd, length);
  }
  int add_seals(int fd, int seals) override {
    return fails("add_seals") ? -1 : SystemCalls::add_seals(fd, seals);
  }
  void* map_shared(int fd, size_t length, size_t alignment) override {
    return fails("map_shared") ? MAP_FAILED : SystemCalls::map_shared(fd, length, alignment);
  }
  int fallocate(int fd, int mode, off_t offset, off_t length) override {
    const bool punches = (mode & FALLOC_FL_PUNCH_HOLE) != 0;
    return fails(punches ? "punch" : "fallocate")
               ? -1
               : SystemCalls::fallocate(fd, mode, offset, length);
  }
  int madvise(void* address, size_t length, int advice) override {
    return fails("madvise") ? -1 : SystemCalls::madvise(address, length, advice);
  }

 private:
  bool fails(const char* name) {
    if (broken != name) return false;
    errno = error_number;
    return true;
  }
};

class PoolFailures : public ::testing::Test {
 protected:
  void make_pool() {
    pool_ = std::move(*RegisteredPool::create(kOptions, calls_));
    ASSERT_TRUE(pool_->add_device(&first_).ok());
    ASSERT_TRUE(pool_->add_device(&second_).ok());
  }
  void expect_untouched() {
    EXPECT_EQ(pool_->stats().registered_bytes, 0u);
    EXPECT_EQ(pool_->stats().allocations, 0u);
    EXPECT_EQ(first_.region_count(), 0u);
    EXPECT_EQ(second_.region_count(), 0u);
  }
  void expect_usable() {
    auto all = pool_->allocate(8 * kBlock);
    ASSERT_TRUE(all.ok()) << all.status().to_string();
    pool_->deallocate(*all);
  }

  BrokenSystemCalls calls_;
  FakeDevice first_{"first"};
  FakeDevice second_{"second"};
  std::unique_ptr<RegisteredPool> pool_;
};

TEST_F(PoolFailures, APoolThatCannotReserveItsRangeIsNotMade) {
  for (const char* call : {"memfd_create", "ftruncate", "add_seals", "map_shared"}) {
    calls_.broken = call;
    calls_.error_number = ENOMEM;
    const auto pool = RegisteredPool::create(kOptions, calls_);
    ASSERT_FALSE(pool.ok()) << call;
    EXPECT_THAT(pool.status().message(), HasSubstr("ENOMEM"));
  }
}

TEST_F(PoolFailures, ShortageOfMemoryNamesTheSystemCallAndItsErrno) {
  make_pool();
  for (const char* call : {"fallocate", "madvise"}) {
    for (size_t size : {size_t{100}, size_t{100000}, 3 * kBlock}) {
      calls_.broken = call;
      calls_.error_number = ENOSPC;
      const auto refused = pool_->allocate(size);
      ASSERT_FALSE(refused.ok());
      EXPECT_EQ(refused.status().code(), Code::kResourceExhausted);
      EXPECT_THAT(refused.status().message(), HasSubstr(call));
      EXPECT_THAT(refused.status().message(), HasSubstr("ENOSPC"));
      expect_untouched();
      calls_.broken.clear();
      expect_usable();
    }
  }
}

TEST_F(PoolFailures, AKernelWithoutPopulateIsNoObstacle) {
  make_pool();
  calls_.broken = "madvise";
  calls_.error_number = EINVAL;
  expect_usable();
}

TEST_F(PoolFailures, ARegistrationThatFailsOnTheSecondDeviceIsUndoneOnTheFirst) {
  make_pool();
  second_.fail_registrations_after(0);
  for (size_t size : {size_t{100}, size_t{100000}, 3 * kBlock}) {
    const auto refused = pool_->allocate(size);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.status().code(), Code::kResourceExhausted);
    EXPECT_THAT(refused.status().message(), HasSubstr("device second"));
    EXPECT_THAT(refused.status().message(), HasSubstr("RLIMIT_MEMLOCK"));
    expect_untouched();
  }
  second_.heal();
  expect_usable();
}

TEST_F(PoolFailures, AdoptionThatFailsOnTheSecondDeviceLeavesTheMemoryWithItsOwner) {
  make_pool();
  second_.fail_registrations_after(0);
  std::vector<uint8_t> users(1000);
  const auto refused =
      pool_->adopt(users.data(), users.size(), [] { ADD_FAILURE() << "not adopted"; });
  EXPECT_EQ(refused.status().code(), Code::kResourceExhausted);
  expect_untouched();
  second_.heal();
  EXPECT_TRUE(pool_->adopt(users.data(), users.size(), [] {}).ok());
}

TEST_F(PoolFailures, ADeviceThatJoinsLaterGetsWhatExistsOrNothing) {
  make_pool();
  std::vector<void*> all = {*pool_->allocate(kBlock), *pool_->allocate(kBlock),
                            *pool_->allocate(3 * kBlock)};
  std::vector<uint8_t> users(1000);
  Buffer adopted = std::move(*pool_->adopt(users.data(), users.size(), [] {}));
  all.push_back(users.data());
  FakeDevice late("late");
  for (int successes = 0; successes < 4; ++successes) {
    late.fail_registrations_after(successes);
    const auto refused = pool_->add_device(&late);
    EXPECT_THAT(refused.status().message(), HasSubstr("device late"));
    EXPECT_EQ(late.region_count(), 0u);
    EXPECT_EQ(pool_->region(all[0], 2), nullptr);
  }
  late.heal();
  const auto index = pool_->add_device(&late);
  ASSERT_TRUE(index.ok());
  EXPECT_EQ(*index, 2u);
  for (void* pointer : all) {
    const RegionKeys* keys = pool_->region(pointer, 2);
    ASSERT_NE(keys, nullptr);
    const ibv_mr mr = late.region_of(keys->lkey).mr;
    EXPECT_LE(mr.addr, pointer);
  }
  all.pop_back();
  for (void* pointer : all) pool_->deallocate(pointer);
  adopted.reset();
  pool_.reset();
}

TEST_F(PoolFailures, MoreDevicesThanAPoolTakesAreRefused) {
  pool_ = std::move(*RegisteredPool::create(kOptions));
  for (size_t i = 0; i < RegisteredPool::kMaxDevices; ++i) {
    EXPECT_EQ(*pool_->add_device(&first_), i);
  }
  EXPECT_EQ(pool_->add_device(&second_).status().code(), Code::kResourceExhausted);
}

TEST_F(PoolFailures, ABlockThatCannotBeDeregisteredIsNeverUsedAgain) {
  make_pool();
  void* run = *pool_->allocate(5 * kBlock);
  pool_->deallocate(run);
  first_.fail_deregistrations(true);
  ::testing::internal::CaptureStderr();
  // Room must be made from the kept run of five, which the first device holds on to.
  EXPECT_EQ(pool_->allocate(7 * kBlock).status().code(), Code::kResourceExhausted);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("EBUSY"));
  first_.fail_deregistrations(false);
  EXPECT_EQ(pool_->allocate(7 * kBlock).status().code(), Code::kResourceExhausted);
  EXPECT_EQ(pool_->stats().registered_bytes, 5 * kBlock);
  auto rest = pool_->allocate(3 * kBlock);
  ASSERT_TRUE(rest.ok());
  pool_->deallocate(*rest);
}

TEST_F(PoolFailures, AdoptedMemoryThatCannotBeDeregisteredIsNotGivenBack) {
  make_pool();
  std::vector<uint8_t> users(1000);
  bool released = false;
  Buffer adopted = std::move(*pool_->adopt(users.data(), users.size(), [&] { released = true; }));
  first_.fail_deregistrations(true);
  adopted.reset();
  EXPECT_FALSE(released);
  EXPECT_EQ(first_.region_count(), 1u);
  EXPECT_EQ(pool_->stats().registered_bytes, users.size());
  first_.heal();
  pool_.reset();
  EXPECT_EQ(first_.region_count(), 0u);
}

TEST_F(PoolFailures, AHoleThatCannotBePunchedIsUsedAgain) {
  make_pool();
  pool_->deallocate(*pool_->allocate(5 * kBlock));
  calls_.broken = "punch";
  calls_.error_number = ENOSPC;
  expect_usable();
}

}  // namespace
}  // namespace be
