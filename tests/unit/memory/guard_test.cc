#include "be/memory/guard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "be/base/log.h"

namespace be::memory {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Memory of the C library, at most `limit` bytes of it at a time. What it gives is rounded up to
// 64 bytes, as a pool's size classes do.
class LimitedSource : public Guard::Source {
 public:
  explicit LimitedSource(size_t limit) : limit_(limit) {}
  ~LimitedSource() override { EXPECT_EQ(used(), 0u) << "the guard kept memory"; }

  Result<std::span<uint8_t>> allocate(size_t bytes, size_t alignment) override {
    const size_t rounded = (bytes + 63) / 64 * 64;
    std::lock_guard lock(mutex_);
    if (used_ + rounded > limit_) return error(Code::kResourceExhausted, "the limit is reached");
    used_ += rounded;
    auto* memory = static_cast<uint8_t*>(
        std::aligned_alloc(alignment, rounded + alignment - rounded % alignment));
    sizes_[memory] = rounded;
    return std::span<uint8_t>(memory, rounded);
  }
  void deallocate(uint8_t* memory) override {
    std::lock_guard lock(mutex_);
    const auto found = sizes_.find(memory);
    ASSERT_NE(found, sizes_.end());
    used_ -= found->second;
    sizes_.erase(found);
    std::free(memory);
  }
  size_t used() const {
    std::lock_guard lock(mutex_);
    return used_;
  }

 private:
  const size_t limit_;
  mutable std::mutex mutex_;
  size_t used_ = 0;
  std::map<uint8_t*, size_t> sizes_;
};

constexpr size_t kLimit = 1 << 20;
constexpr size_t kQuarantine = 64 << 10;

class GuardTest : public ::testing::Test {
 protected:
  GuardTest() {
    set_log_sink([this](LogLevel level, std::string_view line) {
      EXPECT_EQ(level, LogLevel::kError);
      std::lock_guard lock(log_mutex_);
      logged_ += line;
    });
  }
  ~GuardTest() override {
    guard_.reset();
    set_log_sink({});
  }
  void TearDown() override { EXPECT_TRUE(reports_.empty()) << reports_.front().message; }

  uint8_t* allocate(size_t size, size_t alignment = 16) {
    auto made = guard_->allocate(size, alignment);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return made.ok() ? static_cast<uint8_t*>(*made) : nullptr;
  }
  // The one fault there was since the last call; it has been logged too.
  Guard::Report take_report() {
    EXPECT_EQ(reports_.size(), 1u);
    if (reports_.empty()) return {};
    Guard::Report report = reports_.back();
    reports_.clear();
    EXPECT_THAT(logged_, HasSubstr(report.message));
    logged_.clear();
    return report;
  }
  static std::string as_text(const void* pointer) { return fmt::format("{}", pointer); }
  static std::string this_thread() { return fmt::format("thread {}", ::gettid()); }

  std::mutex log_mutex_;
  std::string logged_;
  std::vector<Guard::Report> reports_;
  LimitedSource source_{kLimit};
  std::optional<Guard> guard_{std::in_place, source_, kQuarantine,
                              [this](const Guard::Report& report) { reports_.push_back(report); }};
};

TEST_F(GuardTest, HonestUseIsNoFault) {
  std::vector<uint8_t*> all;
  for (size_t size : {1ul, 7ul, 16ul, 63ul, 64ul, 100ul, 4096ul, 70000ul}) {
    all.push_back(allocate(size));
    EXPECT_EQ(guard_->usable_size(all.back()), size) << "exact to the byte";
    std::memset(all.back(), 0x11, size);
  }
  EXPECT_EQ(guard_->stats().live_allocations, 8u);
  EXPECT_EQ(guard_->stats().live_bytes, 1u + 7 + 16 + 63 + 64 + 100 + 4096 + 70000);
  EXPECT_EQ(guard_->check_all(), 0u);
  for (uint8_t* pointer : all) EXPECT_TRUE(guard_->deallocate(pointer));
  EXPECT_TRUE(guard_->deallocate(nullptr));
  EXPECT_EQ(guard_->check_all(), 0u);
  EXPECT_EQ(guard_->stats().live_allocations, 0u);
  EXPECT_EQ(guard_->stats().live_bytes, 0u);
  EXPECT_EQ(guard_->stats().faults, 0u);
}

TEST_F(GuardTest, AlignmentIsAsAsked) {
  for (size_t alignment : {16ul, 64ul, 256ul, 4096ul}) {
    uint8_t* pointer = allocate(100, alignment);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(pointer) % alignment, 0u);
    EXPECT_TRUE(guard_->deallocate(pointer));
  }
}

TEST_F(GuardTest, OneByteBehindTheEndIsAnOverflow) {
  for (size_t size : {1ul, 15ul, 16ul, 100ul, 1000ul}) {
    uint8_t* pointer = allocate(size);
    pointer[size] = 'X';
    EXPECT_TRUE(guard_->deallocate(pointer)) << "found, and freed all the same";
    const Guard::Report report = take_report();
    EXPECT_EQ(report.fault, Guard::Fault::kOverflow);
    EXPECT_EQ(report.pointer, pointer + size);
    EXPECT_EQ(report.allocation, pointer);
    EXPECT_EQ(report.size, size);
    EXPECT_EQ(report.offset, static_cast<int64_t>(size));
    EXPECT_THAT(report.message,
                AllOf(HasSubstr("a write behind its end at " + as_text(pointer + size)),
                      HasSubstr(fmt::format("{} bytes at {}", size, as_text(pointer))),
                      HasSubstr("allocated by " + this_thread()), HasSubstr("1 bytes changed"),
                      HasSubstr("reads 58 ca ca")));
  }
}

TEST_F(GuardTest, OneByteBeforeTheBeginIsAnUnderflow) {
  for (size_t alignment : {16ul, 4096ul}) {
    uint8_t* pointer = allocate(100, alignment);
    for (size_t distance : {size_t{1}, std::max<size_t>(64, alignment)}) {
      pointer[-static_cast<ptrdiff_t>(distance)] = 0;
      EXPECT_EQ(guard_->check_all(), 1u);
      const Guard::Report report = take_report();
      EXPECT_EQ(report.fault, Guard::Fault::kUnderflow);
      EXPECT_EQ(report.offset, -static_cast<int64_t>(distance));
      EXPECT_EQ(report.freed_by, 0);
    }
    EXPECT_TRUE(guard_->deallocate(pointer));
  }
}

TEST_F(GuardTest, DamageIsToldOnceAndCounted) {
  uint8_t* pointer = allocate(100);
  std::memset(pointer - 4, 0, 108);
  EXPECT_EQ(guard_->check_all(), 2u) << "on both sides";
  EXPECT_EQ(guard_->check_all(), 0u);
  EXPECT_TRUE(guard_->deallocate(pointer));
  EXPECT_EQ(guard_->stats().faults, 2u);
  reports_.clear();
}

TEST_F(GuardTest, ADoubleFreeIsRefusedNamingBothThreads) {
  uint8_t* pointer = allocate(100);
  int other = 0;
  std::thread([&] {
    other = ::gettid();
    EXPECT_TRUE(guard_->deallocate(pointer));
  }).join();
  EXPECT_FALSE(guard_->deallocate(pointer));
  const Guard::Report report = take_report();
  EXPECT_EQ(report.fault, Guard::Fault::kDoubleFree);
  EXPECT_EQ(report.allocated_by, ::gettid());
  EXPECT_EQ(report.freed_by, other);
  EXPECT_THAT(report.message,
              AllOf(HasSubstr("double free at " + as_text(pointer)), HasSubstr("100 bytes"),
                    HasSubstr("allocated by " + this_thread()),
                    HasSubstr(fmt::format("freed by thread {}", other)),
                    HasSubstr("refused in " + this_thread())));
  EXPECT_EQ(guard_->stats().live_allocations, 0u);
}

TEST_F(GuardTest, AFreeOfAnInteriorPointerIsRefusedWithItsOffset) {
  uint8_t* pointer = allocate(100);
  for (const int offset : {-64, -1, 1, 99, 100}) {
    EXPECT_FALSE(guard_->deallocate(pointer + offset));
    const Guard::Report report = take_report();
    EXPECT_EQ(report.fault, Guard::Fault::kInteriorFree);
    EXPECT_EQ(report.allocation, pointer);
    EXPECT_EQ(report.offset, offset);
    EXPECT_THAT(report.message, HasSubstr(fmt::format("(offset {})", offset)));
  }
  EXPECT_EQ(guard_->usable_size(pointer), 100u) << "it is alive";
  EXPECT_TRUE(guard_->deallocate(pointer));
}

TEST_F(GuardTest, AFreeOfForeignMemoryIsRefused) {
  uint8_t* pointer = allocate(100);
  uint8_t elsewhere[8] = {};
  for (void* foreign : {static_cast<void*>(elsewhere), reinterpret_cast<void*>(8),
                        static_cast<void*>(pointer + 4096), static_cast<void*>(pointer - 65)}) {
    EXPECT_FALSE(guard_->deallocate(foreign));
    const Guard::Report report = take_report();
    EXPECT_EQ(report.fault, Guard::Fault::kForeignFree);
    EXPECT_EQ(report.allocation, nullptr);
    EXPECT_THAT(report.message, HasSubstr("not allocated at " + as_text(foreign)));
  }
  EXPECT_TRUE(guard_->deallocate(pointer));
}

TEST_F(GuardTest, AWriteAfterTheFreeIsFoundByACheck) {
  uint8_t* pointer = allocate(1000);
  EXPECT_TRUE(guard_->deallocate(pointer));
  EXPECT_EQ(pointer[500], Guard::kFreedByte) << "whoever reads it sees that it is gone";
  pointer[500] = 1;
  pointer[502] = 2;
  EXPECT_EQ(guard_->check_all(), 1u);
  const Guard::Report report = take_report();
  EXPECT_EQ(report.fault, Guard::Fault::kWriteAfterFree);
  EXPECT_EQ(report.offset, 500);
  EXPECT_THAT(report.message, AllOf(HasSubstr("freed by " + this_thread()),
                                    HasSubstr("2 bytes changed"), HasSubstr("reads 01 df 02 df")));
}

TEST_F(GuardTest, AWriteAfterTheFreeIsFoundWhenTheMemoryLeavesTheQuarantine) {
  uint8_t* pointer = allocate(1000);
  EXPECT_TRUE(guard_->deallocate(pointer));
  pointer[999] = 1;
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(guard_->deallocate(allocate(1000)));
  EXPECT_EQ(take_report().offset, 999);
}

TEST_F(GuardTest, AWriteBesideFreedMemoryIsFoundToo) {
  uint8_t* pointer = allocate(1000);
  EXPECT_TRUE(guard_->deallocate(pointer));
  pointer[1000] = 1;
  guard_->release_quarantine();
  EXPECT_EQ(take_report().fault, Guard::Fault::kOverflow);
}

TEST_F(GuardTest, TheQuarantineIsBoundedAndKeepsTheYoungest) {
  uint8_t* first = allocate(1000);
  EXPECT_TRUE(guard_->deallocate(first));
  std::vector<uint8_t*> all;
  for (int i = 0; i < 300; ++i) all.push_back(allocate(1000));
  for (uint8_t* pointer : all) EXPECT_TRUE(guard_->deallocate(pointer));
  EXPECT_LE(guard_->stats().quarantined_bytes, kQuarantine);
  EXPECT_GE(guard_->stats().quarantined_bytes, kQuarantine - 2048);
  EXPECT_EQ(source_.used(), guard_->stats().quarantined_bytes);
  EXPECT_FALSE(guard_->deallocate(all.back()));
  EXPECT_EQ(take_report().fault, Guard::Fault::kDoubleFree);
  uint8_t* large = allocate(2 * kQuarantine);
  EXPECT_TRUE(guard_->deallocate(large));
  EXPECT_EQ(source_.used(), 0u) << "larger than the quarantine: gone at once";
}

TEST_F(GuardTest, ShortageEmptiesTheQuarantineBeforeAnAllocationFails) {
  uint8_t* half = allocate(kLimit / 2);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(guard_->deallocate(allocate(5000)));
  uint8_t* rest = allocate(kLimit / 2 - 128 - 80);
  EXPECT_EQ(guard_->stats().quarantined_bytes, 0u);
  const auto refused = guard_->allocate(100, 16);
  EXPECT_EQ(refused.status().code(), Code::kResourceExhausted);
  EXPECT_THAT(refused.status().message(), HasSubstr("the limit is reached")) << "the source's";
  EXPECT_TRUE(guard_->deallocate(half));
  EXPECT_TRUE(guard_->deallocate(rest));
}

TEST_F(GuardTest, ASizeThatCannotBeSurroundedIsTheCallersFault) {
  EXPECT_EQ(guard_->allocate(SIZE_MAX, 16).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(guard_->allocate(SIZE_MAX - 4096, 4096).status().code(), Code::kInvalidArgument);
}

TEST_F(GuardTest, LeaksAreNamedAndNotFreed) {
  uint8_t* first = allocate(123);
  uint8_t* second = allocate(456);
  EXPECT_TRUE(guard_->deallocate(allocate(789)));
  guard_->log_live(10);
  EXPECT_THAT(logged_,
              AllOf(HasSubstr("never freed: an allocation of 123 bytes at " + as_text(first)),
                    HasSubstr("456 bytes at " + as_text(second)), Not(HasSubstr("789"))));
  logged_.clear();
  guard_->log_live(0);
  EXPECT_EQ(logged_, "");
  EXPECT_TRUE(guard_->deallocate(first));
  EXPECT_TRUE(guard_->deallocate(second));
}

TEST_F(GuardTest, ItsEndIsTheLastCheck) {
  uint8_t* freed = allocate(100);
  EXPECT_TRUE(guard_->deallocate(freed));
  freed[0] = 0;
  guard_.reset();
  EXPECT_EQ(take_report().fault, Guard::Fault::kWriteAfterFree);
}

TEST_F(GuardTest, TheCallbackMayUseTheGuard) {
  std::vector<Guard::Fault> seen;
  guard_.reset();
  Guard* used = nullptr;
  Guard guard(source_, kQuarantine, [&](const Guard::Report& report) {
    seen.push_back(report.fault);
    used->check_all();
    EXPECT_TRUE(used->deallocate(*used->allocate(10, 16)));
  });
  used = &guard;
  EXPECT_FALSE(guard.deallocate(&seen));
  EXPECT_EQ(seen, std::vector{Guard::Fault::kForeignFree});
}

TEST_F(GuardTest, ManyThreadsMayUseOneGuard) {
  guard_.reset();
  Guard guard(source_, kQuarantine,
              [](const Guard::Report& report) { ADD_FAILURE() << report.message; });
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&, seed] {
      for (size_t i = 0; i < 500; ++i) {
        const size_t size = 1 + (seed * 977 + i * 331) % 3000;
        void* pointer = *guard.allocate(size, 16);
        std::memset(pointer, static_cast<int>(seed), size);
        if (i % 50 == 0) guard.check_all();
        EXPECT_EQ(static_cast<uint8_t*>(pointer)[size - 1], seed);
        EXPECT_TRUE(guard.deallocate(pointer));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(guard.stats().live_allocations, 0u);
}

TEST(GuardDeathTest, ItMayEndTheProgramAtTheFault) {
  LimitedSource source(kLimit);
  Guard guard(source, kQuarantine, Guard::abort_on_fault);
  int elsewhere = 0;
  EXPECT_DEATH(guard.deallocate(&elsewhere), "memory.guard: a free of what is not allocated");
}

}  // namespace
}  // namespace be::memory
