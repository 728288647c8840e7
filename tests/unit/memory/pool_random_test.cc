// Millions of random operations on one pool, by threads that come and go, against a shadow: a bit
// for each 16 bytes of the pool's range that somebody holds, and contents that are checked to the
// last byte when memory is freed, by whoever frees it.
//
// The cap is small, registrations fail at times, and a device joins late (after one attempt that
// fails half-way). BE_TEST_OPERATIONS says how many operations; by default three million, and as
// many as fit into seconds under a sanitizer.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "be/memory/registered_pool.h"
#include "tests/unit/memory/fake_device.h"

namespace be {
namespace {

constexpr size_t kBlock = size_t{64} << 10;
constexpr size_t kCap = 64 * kBlock;
constexpr size_t kGranule = 16;
constexpr int kLanes = 4;            // threads at any time
constexpr int kThreadsPerLane = 12;  // one after the other
constexpr size_t kSlots = 60;        // of each thread

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kDefaultOperations = 150'000;
#else
constexpr uint64_t kDefaultOperations = 3'000'000;
#endif

uint64_t operations() {
  const char* given = std::getenv("BE_TEST_OPERATIONS");
  return given != nullptr ? std::strtoull(given, nullptr, 10) : kDefaultOperations;
}

using Random = std::minstd_rand;

// Who holds what of the range, at a bit a granule.
class Shadow {
 public:
  explicit Shadow(const uint8_t* base) : base_(base) {}

  [[nodiscard]] bool claim(const uint8_t* begin, size_t bytes) {
    return change(begin, bytes, true);
  }
  [[nodiscard]] bool give(const uint8_t* begin, size_t bytes) {
    return change(begin, bytes, false);
  }
  bool empty() const {
    return std::all_of(words_.begin(), words_.end(), [](const auto& word) { return word == 0; });
  }

 private:
  bool change(const uint8_t* begin, size_t bytes, bool claimed) {
    const auto offset = static_cast<size_t>(begin - base_);
    if (offset >= kCap || bytes > kCap - offset || offset % kGranule != 0) return false;
    size_t bit = offset / kGranule;
    const size_t end = (offset + bytes + kGranule - 1) / kGranule;
    while (bit < end) {
      const size_t count = std::min(64 - bit % 64, end - bit);
      const uint64_t mask = (~uint64_t{0} >> (64 - count)) << bit % 64;
      auto& word = words_[bit / 64];
      const uint64_t before = claimed ? word.fetch_or(mask) : ~word.fetch_and(~mask);
      if ((before & mask) != 0) return false;
      bit += count;
    }
    return true;
  }

  const uint8_t* const base_;
  std::array<std::atomic<uint64_t>, kCap / kGranule / 64> words_{};
};

// One allocation or piece of adopted memory, with as many holders as it has handles.
struct Memory {
  uint8_t* begin = nullptr;
  size_t bytes = 0;     // all that may be used
  uint64_t seed = 0;    // of its contents
  bool of_pool = true;  // else adopted
  std::atomic<int> handles = 1;
  std::atomic<bool> released{false};  // adopted: the callback has been called

  uint64_t word(size_t index) const { return (seed + index) * 0x9e3779b97f4a7c15; }
  void fill() {
    for (size_t i = 0; i < bytes / 8; ++i) {
      const uint64_t value = word(i);
      std::memcpy(begin + i * 8, &value, 8);
    }
    const uint64_t last = word(bytes / 8);
    std::memcpy(begin + bytes / 8 * 8, &last, bytes % 8);
  }
  // `offset` is a multiple of 8.
  bool is_whole(size_t offset, size_t length) const {
    uint64_t difference = 0;
    for (size_t i = offset / 8; i < (offset + length) / 8; ++i) {
      uint64_t value = 0;
      std::memcpy(&value, begin + i * 8, 8);
      difference |= value ^ word(i);
    }
    const size_t end = (offset + length) / 8;
    const uint64_t last = word(end);
    return difference == 0 && std::memcmp(begin + end * 8, &last, (offset + length) % 8) == 0;
  }
};

// One handle: a plain pointer or a Buffer of the whole or a part.
struct Piece {
  std::shared_ptr<Memory> memory;
  Buffer buffer;  // none: a plain pointer
  size_t offset = 0;
  size_t length = 0;
};

// Pieces that the next thread will have, or nobody.
class Exchange {
 public:
  bool put(Piece& piece) {
    std::lock_guard lock(mutex_);
    if (pieces_.size() >= 100) return false;
    pieces_.push_back(std::move(piece));
    return true;
  }
  bool take(size_t any, Piece& piece) {
    std::lock_guard lock(mutex_);
    if (pieces_.empty()) return false;
    std::swap(pieces_[any % pieces_.size()], pieces_.back());
    piece = std::move(pieces_.back());
    pieces_.pop_back();
    return true;
  }

 private:
  std::mutex mutex_;
  std::vector<Piece> pieces_;
};

class PoolRandom : public ::testing::TestWithParam<GuardMode> {
 protected:
  PoolRandom()
      : pool_(std::move(*RegisteredPool::create({.block_bytes = kBlock,
                                                 .cap_bytes = kCap,
                                                 .kept_bytes = kCap / 4,
                                                 .guard = GetParam()}))) {
    EXPECT_TRUE(pool_->add_device(&device_).ok());
    void* first = *pool_->allocate(1);
    const auto region = device_.region_of(pool_->region(first, 0)->lkey);
    shadow_.emplace(static_cast<uint8_t*>(region.mr.addr) - region.backing.offset);
    pool_->deallocate(first);
  }

  // What all threads share.
  FakeDevice device_{"early"};
  FakeDevice late_{"late"};
  std::unique_ptr<RegisteredPool> pool_;
  std::optional<Shadow> shadow_;
  Exchange exchange_;
  std::atomic<uint64_t> failures_{0};
  std::atomic<uint64_t> wakes_{0};
  std::atomic<size_t> devices_{1};

  friend class Actor;
};

// One thread's part.
class Actor {
 public:
  Actor(PoolRandom& test, unsigned seed)
      : test_(test), pool_(*test.pool_), random_(seed), serial_(uint64_t{seed} << 40) {}

  void run(uint64_t steps) {
    for (uint64_t i = 0; i < steps && !::testing::Test::HasFatalFailure(); ++i) step();
    stop_waiting();
    for (Piece& slot : slots_) {
      if (slot.memory != nullptr && (below(2) == 0 || !test_.exchange_.put(slot))) drop(slot);
    }
  }
  void drop(Piece& piece) {
    Memory& memory = *piece.memory;
    ASSERT_TRUE(memory.is_whole(piece.offset, piece.length))
        << piece.length << " bytes at offset " << piece.offset << " of " << memory.bytes;
    std::shared_ptr<Memory> kept = std::move(piece.memory);
    // Not ours any more from here on, and the next owner's not before the call below.
    const bool is_last = memory.handles.fetch_sub(1) == 1;
    if (is_last && memory.of_pool) {
      ASSERT_TRUE(test_.shadow_->give(memory.begin, memory.bytes));
    }
    if (piece.buffer) {
      piece.buffer.reset();
    } else {
      pool_.deallocate(memory.begin);
    }
  }

 private:
  uint32_t below(uint32_t bound) { return static_cast<uint32_t>(random_() >> 4) % bound; }

  void step() {
    Piece& slot = slots_[below(kSlots)];
    if (slot.memory == nullptr) {
      if (below(8) == 0 && test_.exchange_.take(below(1000), slot)) return;
      make(slot);
      return;
    }
    switch (below(32)) {
      case 0:
      case 1:
      case 2:
      case 3:
        if (!test_.exchange_.put(slot)) drop(slot);
        break;
      case 4:
        inspect(slot);
        break;
      case 5:
      case 6:
        share(slot);
        break;
      case 7:
        look_at_pool();
        break;
      default:
        drop(slot);
    }
  }

  size_t random_size() {
    switch (below(128)) {
      case 0:
        return 1 + below(4 * kBlock);
      case 1:
      case 2:
      case 3:
        return 1 + below(kBlock);
      default:
        return 1 + below(below(8) == 0 ? 16384 : 1 + below(1024));
    }
  }

  void make(Piece& slot) {
    const size_t size = random_size();
    Piece made{.memory = std::make_shared<Memory>(), .buffer = {}};
    Memory& memory = *made.memory;
    switch (below(16)) {
      case 0:
        adopt(made, size);
        break;
      case 1:
      case 2:
      case 3: {
        auto buffer = pool_.allocate_buffer(size);
        if (!buffer.ok()) return refused(buffer.status());
        made.buffer = std::move(*buffer);
        memory.begin = made.buffer.data();
        memory.bytes = made.buffer.capacity();
        made.buffer.resize(memory.bytes);
        break;
      }
      default: {
        auto pointer = below(8) == 0 ? allocate_aligned(size) : pool_.allocate(size);
        if (!pointer.ok()) return refused(pointer.status());
        memory.begin = static_cast<uint8_t*>(*pointer);
        memory.bytes = pool_.usable_size(*pointer);
      }
    }
    if (memory.begin == nullptr) return;
    if (memory.of_pool) {
      ASSERT_GE(memory.bytes, size);
      ASSERT_EQ(reinterpret_cast<uintptr_t>(memory.begin) % (size >= 64 ? 64 : 16), 0u);
      ASSERT_TRUE(test_.shadow_->claim(memory.begin, memory.bytes))
          << memory.bytes << " bytes overlap what another one holds";
    }
    memory.seed = ++serial_;
    memory.fill();
    made.length = memory.bytes;
    slot = std::move(made);
  }

  Result<void*> allocate_aligned(size_t size) {
    const size_t alignment = size_t{1} << below(17);
    auto pointer = pool_.allocate_aligned(size, alignment);
    if (pointer.ok()) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(*pointer) % alignment, 0u);
    }
    return pointer;
  }
  void adopt(Piece& made, size_t size) {
    auto users = std::make_shared<std::vector<uint8_t>>(size);
    auto adopted = pool_.adopt(users->data(), size, [memory = made.memory, users] {
      EXPECT_EQ(memory->handles, 0);
      EXPECT_FALSE(memory->released.exchange(true)) << "released twice";
    });
    if (!adopted.ok()) return refused(adopted.status());
    made.buffer = std::move(*adopted);
    made.memory->begin = users->data();
    made.memory->bytes = size;
    made.memory->of_pool = false;
  }

  // The slot's memory gets one handle more, in another slot.
  void share(Piece& slot) {
    Piece& other = slots_[below(kSlots)];
    if (!slot.buffer || slot.length == 0 || other.memory != nullptr) return;
    const size_t offset = below(static_cast<uint32_t>(slot.length)) / 8 * 8;
    const size_t length = 1 + below(static_cast<uint32_t>(slot.length - offset));
    slot.memory->handles.fetch_add(1);
    other.memory = slot.memory;
    other.buffer = slot.buffer.share(offset, length);
    other.offset = slot.offset + offset;
    other.length = length;
    ASSERT_EQ(other.buffer.data(), slot.memory->begin + other.offset);
  }

  // Any pointer inside finds the keys of one region that holds all of it.
  void inspect(const Piece& piece) {
    const Memory& memory = *piece.memory;
    const size_t devices = test_.devices_;
    for (size_t index = 0; index < devices; ++index) {
      FakeDevice& device = index == 0 ? test_.device_ : test_.late_;
      const RegionKeys* keys =
          pool_.region(memory.begin + below(static_cast<uint32_t>(memory.bytes)), index);
      ASSERT_NE(keys, nullptr);
      const ibv_mr mr = device.region_of(keys->lkey).mr;
      ASSERT_EQ(keys->rkey, mr.rkey);
      ASSERT_LE(static_cast<uint8_t*>(mr.addr), memory.begin);
      ASSERT_GE(static_cast<uint8_t*>(mr.addr) + mr.length, memory.begin + memory.bytes);
    }
    if (memory.of_pool) {
      ASSERT_EQ(pool_.usable_size(memory.begin), memory.bytes);
    }
  }

  void look_at_pool() {
    const PoolStats stats = pool_.stats();
    EXPECT_LE(stats.registered_bytes, kCap);
    EXPECT_LE(stats.peak_registered_bytes, kCap);
    if (below(16) == 0) test_.device_.fail_registrations_after(static_cast<int>(below(3)));
    if (below(4) == 0) test_.device_.heal();
    if (below(4) == 0) pool_.release_unused();
  }

  // An error value that names its cause; then somebody is told when memory is back.
  void refused(const Status& status) {
    test_.failures_.fetch_add(1);
    ASSERT_EQ(status.code(), Code::kResourceExhausted) << status.to_string();
    const std::string& message = status.message();
    ASSERT_TRUE(message.find("memory.cap_bytes = 4194304") != std::string::npos ||
                message.find("device early: ibv_reg_mr") != std::string::npos)
        << message;
    if (below(4) != 0) return;
    stop_waiting();
    waiter_ = std::make_shared<Waiter>();
    waiting_id_ = pool_.on_free([waiter = waiter_, &wakes = test_.wakes_] {
      EXPECT_FALSE(waiter->cancelled) << "called after cancel_on_free";
      EXPECT_EQ(waiter->calls.fetch_add(1), 0) << "called twice";
      wakes.fetch_add(1);
    });
  }
  void stop_waiting() {
    if (waiter_ == nullptr) return;
    pool_.cancel_on_free(waiting_id_);
    waiter_->cancelled = true;
    waiter_ = nullptr;
  }

  struct Waiter {
    std::atomic<int> calls{0};
    std::atomic<bool> cancelled{false};
  };

  PoolRandom& test_;
  RegisteredPool& pool_;
  Random random_;
  uint64_t serial_;
  std::array<Piece, kSlots> slots_;
  std::shared_ptr<Waiter> waiter_;
  uint64_t waiting_id_ = 0;
};

INSTANTIATE_TEST_SUITE_P(, PoolRandom, ::testing::Values(GuardMode::kOff, GuardMode::kReport),
                         [](const auto& param) {
                           return param.param == GuardMode::kOff ? "Plain" : "Guarded";
                         });

TEST_P(PoolRandom, NothingOverlapsAndNothingIsLost) {
  const uint64_t slowness = GetParam() == GuardMode::kOff ? 1 : 4;
  const uint64_t steps = operations() / (kLanes * kThreadsPerLane) / slowness;
  std::vector<std::thread> lanes;
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    lanes.emplace_back([&, lane] {
      for (unsigned i = 0; i < kThreadsPerLane; ++i) {
        std::thread([&, seed = 1 + lane + kLanes * i] { Actor(*this, seed).run(steps); }).join();
        if (lane == 0 && i == kThreadsPerLane / 3) {
          late_.fail_registrations_after(3);
          EXPECT_EQ(pool_->add_device(&late_).status().code(), Code::kResourceExhausted);
          EXPECT_EQ(late_.region_count(), 0u);
          late_.heal();
          EXPECT_EQ(*pool_->add_device(&late_), 1u);
          devices_ = 2;
        }
      }
    });
  }
  for (auto& lane : lanes) lane.join();
  device_.heal();
  Actor last(*this, 99);
  for (Piece left; exchange_.take(0, left);) last.drop(left);

  EXPECT_TRUE(shadow_->empty());
  const PoolStats stats = pool_->stats();
  EXPECT_EQ(stats.allocations, 0u);
  EXPECT_EQ(stats.live_bytes, 0u);
  EXPECT_EQ(stats.registered_bytes, device_.registered_bytes());
  EXPECT_EQ(stats.registered_bytes, late_.registered_bytes());
  EXPECT_GT(failures_, 0u) << "the cap was never felt";
  EXPECT_GT(wakes_, 0u);
  RecordProperty("refused", std::to_string(failures_));
  RecordProperty("woken", std::to_string(wakes_));
  EXPECT_EQ(stats.guard_faults, 0u);
  // A guarded allocation needs some bytes more than it gives.
  auto everything = pool_->allocate(GetParam() == GuardMode::kOff ? kCap : kCap - kBlock);
  ASSERT_TRUE(everything.ok()) << everything.status().to_string();
  pool_->deallocate(*everything);
  pool_.reset();
}

}  // namespace
}  // namespace be
