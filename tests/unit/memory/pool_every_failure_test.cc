// One story of a pool's life is told again and again, each time with another call failing: the
// first system call, the second, and so on until there is none left to fail; then each registration
// and deregistration. Whatever fails, every error names its cause, the pool goes on, and nothing is
// left behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "be/base/log.h"
#include "be/memory/registered_pool.h"
#include "tests/unit/memory/counted_system_calls.h"
#include "tests/unit/memory/fake_device.h"

namespace be {
namespace {

using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

int pool_descriptors() {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;  // the iterator's own
    const auto target = std::filesystem::read_symlink(entry.path(), gone).string();
    count += target.find("memfd:byteexpress") != std::string::npos;
  }
  return count;
}

int pool_mappings() {
  int count = 0;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    count += line.find("memfd:byteexpress") != std::string::npos;
  }
  return count;
}

// Blocks that are made of small pages, and of huge ones where the kernel has them.
class PoolEveryFailure : public ::testing::TestWithParam<size_t> {
 protected:
  PoolEveryFailure() {
    set_log_sink([this](LogLevel, std::string_view line) { logged_ += line; });
  }
  ~PoolEveryFailure() override { set_log_sink({}); }

  size_t block() const { return GetParam(); }
  size_t cap() const { return 8 * block(); }
  PoolOptions options() const {
    return {.block_bytes = block(), .cap_bytes = cap(), .kept_bytes = 0};
  }

  void TearDown() override {
    pool_.reset();
    expect_nothing_left();
  }
  void expect_nothing_left() {
    EXPECT_EQ(pool_descriptors(), descriptors_);
    EXPECT_EQ(pool_mappings(), mappings_);
    for (FakeDevice* device : {&first_, &second_, &late_}) {
      EXPECT_EQ(device->region_count(), 0u) << device->name();
    }
  }
  void make_pool() {
    auto made = RegisteredPool::create(options(), calls_);
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    pool_ = std::move(*made);
    ASSERT_TRUE(pool_->add_device(&first_).ok());
    ASSERT_TRUE(pool_->add_device(&second_).ok());
  }

  void expect_named(const Status& status) {
    ++errors_;
    EXPECT_EQ(status.code(), Code::kResourceExhausted) << status.to_string();
    EXPECT_THAT(status.message(),
                AnyOf(ContainsRegex("(fallocate|madvise).*of [0-9]+ bytes.*ENOMEM"),
                      ContainsRegex("registering [0-9]+ bytes with device (first|second|late): "
                                    "ibv_reg_mr failed: ENOMEM, RLIMIT_MEMLOCK"),
                      HasSubstr(fmt::format("memory.cap_bytes = {}", cap()))));
  }
  void take(Result<void*> made, size_t size, std::vector<void*>& all) {
    if (!made.ok()) return expect_named(made.status());
    EXPECT_NE(pool_->region(*made, 0), nullptr);
    EXPECT_NE(pool_->region(static_cast<uint8_t*>(*made) + size - 1, 1), nullptr);
    std::memset(*made, 0x5a, size);
    all.push_back(*made);
  }
  void give_half(std::vector<void*>& all) {
    for (size_t i = all.size() / 2; i < all.size(); ++i) pool_->deallocate(all[i]);
    all.resize(all.size() / 2);
  }

  // All kinds of memory; a device that joins in the middle; growth, release and growth again.
  void tell_story(bool with_adopted = true) {
    std::vector<void*> all;
    std::vector<uint8_t> users(5000);
    errors_ = 0;
    for (size_t round = 0; round < 2; ++round) {
      for (size_t size : {size_t{100}, block() + 1, size_t{16384}, size_t{100000}, 2 * block()}) {
        take(pool_->allocate(size), size, all);
      }
      take(pool_->allocate_aligned(5000, 16384), 5000, all);
      if (with_adopted) {
        auto adopted = pool_->adopt(users.data(), users.size(), [] {});
        if (!adopted.ok()) expect_named(adopted.status());
      }
      if (round == 0) {
        const auto index = pool_->add_device(&late_);
        if (!index.ok()) {
          expect_named(index.status());
          EXPECT_EQ(late_.region_count(), 0u);
        }
      }
      give_half(all);
      pool_->release_unused();
      pool_->release_unused();
    }
    for (void* pointer : all) pool_->deallocate(pointer);
    pool_->release_unused();
    pool_->release_unused();
    EXPECT_EQ(pool_->stats().allocations, 0u);
    EXPECT_EQ(pool_->stats().live_bytes, 0u);
  }
  // Every block but those that could not be deregistered.
  void expect_usable(size_t lost_bytes = 0) {
    std::vector<void*> blocks;
    for (size_t i = 0; i < (cap() - lost_bytes) / block(); ++i) {
      auto made = pool_->allocate(block());
      ASSERT_TRUE(made.ok()) << made.status().to_string();
      blocks.push_back(*made);
    }
    EXPECT_EQ(pool_->stats().registered_bytes, cap());
    EXPECT_EQ(pool_->allocate(block()).status().code(), Code::kResourceExhausted);
    for (void* pointer : blocks) pool_->deallocate(pointer);
    pool_->release_unused();
    pool_->release_unused();
    EXPECT_EQ(pool_->stats().registered_bytes, lost_bytes);
  }

  // Other tests of this program may have left a pool behind.
  const int descriptors_ = pool_descriptors();
  const int mappings_ = pool_mappings();

  CountedSystemCalls calls_;
  FakeDevice first_{"first"};
  FakeDevice second_{"second"};
  FakeDevice late_{"late"};
  std::unique_ptr<RegisteredPool> pool_;
  std::string logged_;
  int errors_ = 0;
};

INSTANTIATE_TEST_SUITE_P(, PoolEveryFailure, ::testing::Values(size_t{1} << 18, size_t{1} << 21),
                         [](const auto& param) { return std::to_string(param.param); });

TEST_P(PoolEveryFailure, WithoutOneTheStoryHasNoError) {
  make_pool();
  tell_story();
  EXPECT_EQ(errors_, 0);
  EXPECT_EQ(logged_, "");
  EXPECT_EQ(pool_->stats().registered_bytes, 0u);
  expect_usable();
}

TEST_P(PoolEveryFailure, NoSystemCallOfThePoolsBirthMayFail) {
  const std::vector<std::string> calls = {"memfd_create", "ftruncate", "sealing", "mmap"};
  for (size_t i = 0; i < calls.size(); ++i) {
    calls_.fail_after(static_cast<int>(i), false);
    const auto pool = RegisteredPool::create(options(), calls_);
    ASSERT_FALSE(pool.ok()) << calls[i];
    EXPECT_THAT(pool.status().message(), HasSubstr(calls[i]));
    EXPECT_THAT(pool.status().message(), HasSubstr("ENOMEM"));
    expect_nothing_left();
  }
}

TEST_P(PoolEveryFailure, AnySystemCallMayFailOnce) {
  int told = 0;
  for (int n = 0; told == n; ++n) {
    SCOPED_TRACE(n);
    make_pool();
    calls_.fail_after(n, false);
    tell_story();
    told += calls_.failed();
    calls_.heal();
    expect_usable();
    pool_.reset();
    expect_nothing_left();
    if (HasFailure()) return;
  }
  EXPECT_GT(told, 12) << "a story of more calls was meant";
}

TEST_P(PoolEveryFailure, AllSystemCallsMayFailFromAnyOneOn) {
  bool has_failed = true;
  int stories_with_errors = 0;
  for (int n = 0; has_failed; ++n) {
    SCOPED_TRACE(n);
    make_pool();
    calls_.fail_after(n, true);
    tell_story();
    has_failed = calls_.failed() > 0;
    stories_with_errors += errors_ > 0;
    calls_.heal();
    expect_usable();
    pool_.reset();
    expect_nothing_left();
    if (HasFailure()) return;
  }
  EXPECT_GT(stories_with_errors, 10);
}

TEST_P(PoolEveryFailure, AllRegistrationsMayFailFromAnyOneOnWithAnyDevice) {
  for (FakeDevice* device : {&first_, &second_, &late_}) {
    int n = 0;
    for (errors_ = 1; errors_ > 0; ++n) {
      SCOPED_TRACE(fmt::format("{} after {}", device->name(), n));
      make_pool();
      device->fail_registrations_after(n);
      tell_story();
      device->heal();
      EXPECT_EQ(pool_->stats().registered_bytes, 0u);
      expect_usable();
      pool_.reset();
      expect_nothing_left();
      if (HasFailure()) return;
    }
    EXPECT_GT(n, 5) << "a story of more registrations was meant";
  }
}

// What the device holds on to is lost to the pool, and to nobody else; at the pool's end it is
// tried again.
TEST_P(PoolEveryFailure, AllDeregistrationsMayFailFromAnyOneOn) {
  size_t lost = 1;
  int n = 0;
  for (; lost > 0; ++n) {
    SCOPED_TRACE(n);
    make_pool();
    first_.fail_deregistrations_after(n);
    tell_story(false);
    lost = pool_->stats().registered_bytes;
    EXPECT_EQ(second_.registered_bytes(), 0u);
    if (lost > 0) {
      EXPECT_THAT(logged_, HasSubstr("deregistering"));
    }
    first_.heal();
    expect_usable(lost);
    pool_.reset();
    expect_nothing_left();
    if (HasFailure()) return;
  }
  EXPECT_GT(n, 5);
}

}  // namespace
}  // namespace be
