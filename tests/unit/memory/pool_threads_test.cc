// Many threads on one pool, against a shadow model: every allocation is filled with a pattern of
// its own, whose survival proves that no two overlap.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <latch>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "be/memory/registered_pool.h"
#include "tests/unit/memory/fake_device.h"

namespace be {
namespace {

constexpr size_t kBlock = size_t{1} << 18;

struct Piece {
  uint8_t* data = nullptr;
  size_t size = 0;
  uint64_t pattern = 0;

  void fill() {
    for (size_t i = 0; i + 16 <= size; i += stride()) std::memcpy(data + i, &pattern, 8);
    if (size >= 8) std::memcpy(data + size - 8, &pattern, 8);
  }
  void check() const {
    uint64_t found = pattern;
    for (size_t i = 0; i + 16 <= size && found == pattern; i += stride()) {
      std::memcpy(&found, data + i, 8);
    }
    if (size >= 8 && found == pattern) std::memcpy(&found, data + size - 8, 8);
    ASSERT_EQ(found, pattern) << "the contents of " << size << " bytes changed";
  }
  size_t stride() const { return size < 1024 ? 8 : 512; }
};

// Pieces on their way from the thread that allocated them to another that will free them.
class Exchange {
 public:
  void put(Piece piece) {
    std::lock_guard lock(mutex_);
    pieces_.push_back(piece);
  }
  bool take(Piece& piece) {
    std::lock_guard lock(mutex_);
    if (pieces_.empty()) return false;
    piece = pieces_.back();
    pieces_.pop_back();
    return true;
  }

 private:
  std::mutex mutex_;
  std::vector<Piece> pieces_;
};

class PoolThreads : public ::testing::Test {
 protected:
  void make_pool(size_t cap_bytes) {
    pool_ = std::move(*RegisteredPool::create({.block_bytes = kBlock, .cap_bytes = cap_bytes}));
    ASSERT_TRUE(pool_->add_device(&device_).ok());
  }
  void TearDown() override {
    EXPECT_EQ(pool_->stats().allocations, 0u);
    EXPECT_EQ(pool_->stats().live_bytes, 0u);
    EXPECT_EQ(pool_->stats().registered_bytes, device_.registered_bytes());
    // All threads have ended and this one has nothing: every page is free again.
    auto everything = pool_->allocate(pool_->stats().cap_bytes);
    ASSERT_TRUE(everything.ok()) << everything.status().to_string();
    pool_->deallocate(*everything);
  }
  static size_t random_size(std::mt19937& random) {
    switch (random() % 16) {
      case 0:
        return 1 + random() % (3 * kBlock);
      case 1:
      case 2:
        return 1 + random() % 100000;
      default:
        return 1 + random() % (random() % 2 == 0 ? 600 : 16384);
    }
  }

  FakeDevice device_;
  std::unique_ptr<RegisteredPool> pool_;
};

TEST_F(PoolThreads, NoTwoAllocationsOverlapWhoeverFreesThem) {
  make_pool(400 * kBlock);
  Exchange exchange;
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&, seed] {
      std::mt19937 random(seed);
      std::array<Piece, 60> slots;
      uint64_t serial = uint64_t{seed + 1} << 40;
      for (int step = 0; step < 20000; ++step) {
        Piece& slot = slots[random() % slots.size()];
        if (slot.data != nullptr) {
          slot.check();
          if (random() % 4 == 0) {
            exchange.put(slot);
          } else {
            pool_->deallocate(slot.data);
          }
        }
        if (random() % 8 == 0 && exchange.take(slot)) continue;
        const size_t size = random_size(random);
        auto made = pool_->allocate(size);
        slot = {};
        if (!made.ok()) continue;  // 60 slots of 4 threads can reach the cap
        ASSERT_EQ(reinterpret_cast<uintptr_t>(*made) % (size >= 64 ? 64 : 16), 0u);
        ASSERT_NE(pool_->region(static_cast<uint8_t*>(*made) + size - 1, 0), nullptr);
        slot = {.data = static_cast<uint8_t*>(*made), .size = size, .pattern = ++serial};
        slot.fill();
      }
      for (Piece& slot : slots) {
        if (slot.data == nullptr) continue;
        slot.check();
        pool_->deallocate(slot.data);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  Piece left;
  while (exchange.take(left)) {
    left.check();
    pool_->deallocate(left.data);
  }
}

TEST_F(PoolThreads, AProducerAndAConsumerDoNotMakeMemoryGrow) {
  make_pool(100 * kBlock);
  constexpr int kMessages = 20000;
  std::array<std::atomic<void*>, 64> ring{};
  std::thread consumer([&] {
    for (int i = 0; i < kMessages; ++i) {
      auto& place = ring[static_cast<size_t>(i) % ring.size()];
      void* pointer = nullptr;
      while ((pointer = place.exchange(nullptr)) == nullptr) std::this_thread::yield();
      pool_->deallocate(pointer);
    }
  });
  for (int i = 0; i < kMessages; ++i) {
    auto& place = ring[static_cast<size_t>(i) % ring.size()];
    auto made = pool_->allocate(4096);
    ASSERT_TRUE(made.ok());
    while (place.load() != nullptr) std::this_thread::yield();
    place.store(*made);
  }
  consumer.join();
  // 64 on their way, 16 in each of two caches, a span's worth of rounding.
  EXPECT_LE(pool_->stats().peak_registered_bytes, 3 * kBlock);
}

TEST_F(PoolThreads, WhatAnIdleThreadKeepsIsFoundBeforeTheCapIsReported) {
  make_pool(8 * kBlock);
  std::latch freed(1);
  std::latch finished(1);
  std::thread idle([&] {
    std::vector<void*> all;
    for (size_t size : {64ul, 1000ul, 4096ul, 16384ul}) {
      for (int i = 0; i < 30; ++i) all.push_back(*pool_->allocate(size));
    }
    for (void* pointer : all) pool_->deallocate(pointer);
    freed.count_down();
    finished.wait();
  });
  freed.wait();
  auto everything = pool_->allocate(8 * kBlock);
  EXPECT_TRUE(everything.ok()) << everything.status().to_string();
  if (everything.ok()) pool_->deallocate(*everything);
  finished.count_down();
  idle.join();
}

// Waiters that are told of memory must find it in the end: nobody waits for ever.
TEST_F(PoolThreads, ThreadsThatWaitAtTheCapAllGetTheirTurn) {
  make_pool(4 * kBlock);
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&, seed] {
      std::mt19937 random(seed);
      for (int i = 0; i < 300; ++i) {
        const size_t size = random() % 2 == 0 ? 2 * kBlock : 1 + random() % 16384;
        for (;;) {
          auto made = pool_->allocate(size);
          if (made.ok()) {
            static_cast<uint8_t*>(*made)[size - 1] = 1;
            pool_->deallocate(*made);
            break;
          }
          std::atomic<bool> told = false;
          const uint64_t id = pool_->on_free([&] {
            told = true;
            told.notify_one();
          });
          told.wait(false);
          pool_->cancel_on_free(id);
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST_F(PoolThreads, SharedBuffersAreFreedOnceByWhicheverThreadIsLast) {
  make_pool(16 * kBlock);
  for (int round = 0; round < 200; ++round) {
    Buffer whole = std::move(*pool_->allocate_buffer(1000));
    std::memset(whole.data(), round, whole.size());
    std::thread other([slice = whole.share(500, 100), round] {
      ASSERT_EQ(slice.data()[99], static_cast<uint8_t>(round));
    });
    whole.reset();
    other.join();
  }
}

TEST_F(PoolThreads, ABufferMayOutliveTheCacheOfItsEndingThread) {
  make_pool(16 * kBlock);
  std::thread ending([&] {
    thread_local std::vector<Buffer> last;  // made before the cache, so it ends after it
    last.reserve(40);
    for (int i = 0; i < 40; ++i) last.push_back(std::move(*pool_->allocate_buffer(5000)));
    last.push_back(std::move(*pool_->allocate_buffer(100000)));
  });
  ending.join();
  EXPECT_EQ(pool_->stats().allocations, 0u);
}

TEST_F(PoolThreads, PoolsAndThreadsMayEndInAnyOrder) {
  make_pool(kBlock);
  std::latch used(2);
  std::latch destroyed(1);
  auto other = std::move(*RegisteredPool::create({.block_bytes = kBlock, .cap_bytes = kBlock}));
  const auto use_both = [&] {
    for (auto* pool : {other.get(), pool_.get()}) pool->deallocate(*pool->allocate(100));
    used.count_down();
    destroyed.wait();
    pool_->deallocate(*pool_->allocate(100));  // the living one works on
  };
  std::thread first(use_both);
  std::thread second(use_both);
  used.wait();
  other.reset();
  destroyed.count_down();
  first.join();
  second.join();
}

TEST_F(PoolThreads, ADeviceMayJoinWhileThreadsAllocate) {
  make_pool(100 * kBlock);
  FakeDevice late("late");
  std::atomic<bool> stop = false;
  std::atomic<size_t> devices = 1;
  std::thread allocating([&] {
    std::mt19937 random(7);
    while (!stop) {
      const size_t known = devices.load();
      auto made = pool_->allocate(random_size(random));
      if (!made.ok()) continue;
      for (size_t i = 0; i < known; ++i) ASSERT_NE(pool_->region(*made, i), nullptr);
      pool_->deallocate(*made);
    }
  });
  ASSERT_TRUE(pool_->add_device(&late).ok());
  devices = 2;
  for (int i = 0; i < 200; ++i) {
    auto made = pool_->allocate(2 * kBlock);
    if (made.ok()) pool_->deallocate(*made);
  }
  stop = true;
  allocating.join();
  EXPECT_EQ(late.registered_bytes(), device_.registered_bytes());
  pool_->deallocate(*pool_->allocate(pool_->stats().cap_bytes));
  // `late` ends before the fixture's pool.
  auto last = std::move(pool_);
  EXPECT_EQ(last->stats().allocations, 0u);
  last.reset();
  make_pool(kBlock);
}

}  // namespace
}  // namespace be
