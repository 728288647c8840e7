// A pool's life: what is allocated, shared, adopted and freed, by two threads of which one may end
// and come again, while system calls and devices fail as the input says. Against a shadow: no two
// pieces overlap, contents stay until their last handle goes, statistics are exact, whoever waits
// for memory is told, and at the end every block can be had again. In guard mode there are also bad
// frees, which are refused, and writes beside the memory, which are found.
#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "be/memory/registered_pool.h"
#include "tests/common/must_hold.h"
#include "tests/common/station.h"
#include "tests/fuzz/common/input.h"
#include "tests/unit/memory/counted_system_calls.h"
#include "tests/unit/memory/fake_device.h"

namespace {

using namespace be;
using namespace be::fuzz;

constexpr size_t kBlock = size_t{64} << 10;
constexpr size_t kCap = 8 * kBlock;
constexpr size_t kDevices = 3;

// A thread that does one thing after another while its maker waits, and then ends.
class OtherThread {
 public:
  OtherThread() : thread_([this] { work(); }) {}
  ~OtherThread() {
    run(nullptr);
    thread_.join();
  }
  void run(const std::function<void()>* job) {
    std::unique_lock lock(mutex_);
    job_ = job;
    has_job_ = true;
    changed_.notify_one();
    if (job != nullptr) changed_.wait(lock, [&] { return !has_job_; });
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return has_job_; });
      if (job_ == nullptr) return;
      (*job_)();
      has_job_ = false;
      changed_.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void()>* job_ = nullptr;
  bool has_job_ = false;
  std::thread thread_;
};

// An allocation or adopted memory.
struct Memory {
  uint8_t* begin = nullptr;
  size_t bytes = 0;  // all that may be used
  uint8_t value = 0;
  int handles = 1;
  bool adopted = false;
  int releases = 0;
  bool damaged = false;  // something was written beside it

  bool is_whole() const {
    return begin[0] == value && std::memcmp(begin, begin + 1, bytes - 1) == 0;
  }
};

struct Handle {
  Memory* memory = nullptr;
  Buffer buffer;  // none: a plain pointer
};

class Story {
 public:
  explicit Story(Input& input)
      : input_(input),
        guarded_(input.below(4) == 0),
        pool_(RegisteredPool::create({.block_bytes = kBlock,
                                      .cap_bytes = kCap,
                                      .kept_bytes = input.below(4) * kBlock,
                                      .huge_pages = HugePages::kOff,
                                      .guard = guarded_ ? GuardMode::kReport : GuardMode::kOff},
                                     calls_)
                  .value()) {}

  void tell() {
    for (int step = 0; step < 300 && !input_.empty(); ++step) {
      act();
      compare();
    }
    end();
  }

 private:
  void act() {
    switch (input_.below(22)) {
      case 0:
      case 1:
      case 2:
      case 3:
      case 4:
        return allocate();
      case 5:
        return allocate_aligned();
      case 6:
      case 7:
        return allocate_buffer();
      case 8:
        return adopt();
      case 9:
      case 10:
      case 11:
        if (!handles_.empty()) drop(input_.u8() % handles_.size());
        return;
      case 12:
        return share();
      case 13:
        return inspect();
      case 14:
        return add_device();
      case 15:
        calls_.fail_after(input_.u8() % 8, input_.flag());
        return;
      case 16:
        devices_[input_.u8() % kDevices].fail_registrations_after(input_.u8() % 4);
        return;
      case 17:
        return heal();
      case 18:
        return release();
      case 19:
        other_.reset();
        return;
      case 20:
        if (guarded_) free_badly();
        return;
      case 21:
        if (guarded_) write_beside();
        return;
    }
  }

  // What the pool does now, it does on one of two threads.
  void on_a_thread(const std::function<void()>& job) {
    if (input_.below(3) != 0) return job();
    if (!other_) other_.emplace();
    other_->run(&job);
  }

  size_t size() {
    switch (input_.below(8)) {
      case 0:
        return input_.u32() % (kCap + kCap / 4);
      case 1:
      case 2:
        return input_.u32() % (2 * kBlock);
      case 3:
      case 4:
        return input_.u16() % 20000;
      default:
        return input_.u16() % 1100;
    }
  }

  void allocate() {
    const size_t wanted = size();
    std::optional<Result<void*>> made;
    on_a_thread([&] { made.emplace(pool_->allocate(wanted)); });
    if (!made->ok()) return refused(made->status(), wanted);
    MUST_HOLD(reinterpret_cast<uintptr_t>(**made) % (wanted >= 64 ? 64 : 16) == 0);
    own(**made, wanted, pool_->usable_size(**made));
  }
  void allocate_aligned() {
    const size_t wanted = size();
    const size_t alignment = size_t{1} << input_.below(17);
    std::optional<Result<void*>> made;
    on_a_thread([&] { made.emplace(pool_->allocate_aligned(wanted, alignment)); });
    if (!made->ok()) return refused(made->status(), wanted);
    MUST_HOLD(reinterpret_cast<uintptr_t>(**made) % alignment == 0);
    own(**made, wanted, pool_->usable_size(**made));
  }
  void allocate_buffer() {
    const size_t wanted = size();
    std::optional<Result<Buffer>> made;
    on_a_thread([&] { made.emplace(pool_->allocate_buffer(wanted)); });
    if (!made->ok()) return refused(made->status(), wanted);
    Buffer buffer = std::move(*made).value();
    own(buffer.data(), wanted, buffer.capacity());
    handles_.back().buffer = std::move(buffer);
  }
  void own(void* begin, size_t wanted, size_t bytes) {
    MUST_HOLD(wanted > 0 && bytes >= wanted);
    auto memory = std::make_unique<Memory>();
    memory->begin = static_cast<uint8_t*>(begin);
    memory->bytes = bytes;
    keep(std::move(memory));
  }
  void keep(std::unique_ptr<Memory> memory) {
    const auto after = all_.lower_bound(memory->begin);
    MUST_HOLD(after == all_.end() || memory->begin + memory->bytes <= after->first);
    if (after != all_.begin()) {
      const Memory& before = *std::prev(after)->second;
      MUST_HOLD(before.begin + before.bytes <= memory->begin);
    }
    memory->value = ++serial_;
    std::memset(memory->begin, memory->value, memory->bytes);
    live_bytes_ += memory->bytes;
    handles_.push_back({memory.get(), {}});
    all_.emplace_hint(after, memory->begin, std::move(memory));
  }

  void adopt() {
    auto memory = std::make_unique<Memory>();
    memory->begin = users_ + input_.u16() % sizeof(users_);
    memory->bytes = 1 + input_.u16() % static_cast<size_t>(users_ + sizeof(users_) - memory->begin);
    memory->adopted = true;
    const bool overlaps = std::any_of(all_.begin(), all_.end(), [&](const auto& entry) {
      const Memory& other = *entry.second;
      return other.begin < memory->begin + memory->bytes &&
             memory->begin < other.begin + other.bytes;
    });
    auto adopted =
        pool_->adopt(memory->begin, memory->bytes, [m = memory.get()] { ++m->releases; });
    if (!adopted.ok() && overlaps && adopted.status().code() == Code::kAlreadyExists) return;
    if (!adopted.ok()) return refused(adopted.status(), memory->bytes);
    MUST_HOLD(!overlaps);
    keep(std::move(memory));
    handles_.back().buffer = std::move(adopted).value();
  }

  void share() {
    if (handles_.empty()) return;
    Handle& handle = handles_[input_.u8() % handles_.size()];
    if (!handle.buffer || handle.buffer.empty()) return;
    const size_t offset = input_.u16() % handle.buffer.size();
    Buffer slice = handle.buffer.share(offset, input_.u16() % (handle.buffer.size() - offset + 1));
    MUST_HOLD(slice.data() == handle.buffer.data() + offset);
    ++handle.memory->handles;
    handles_.push_back({handle.memory, std::move(slice)});
  }

  void drop(size_t index) {
    Handle handle = std::move(handles_[index]);
    handles_[index] = std::move(handles_.back());
    handles_.pop_back();
    Memory& memory = *handle.memory;
    MUST_HOLD(memory.is_whole());
    on_a_thread([&] {
      if (handle.buffer) {
        handle.buffer.reset();
      } else {
        pool_->deallocate(memory.begin);
      }
    });
    if (--memory.handles > 0) {
      MUST_HOLD(memory.releases == 0);
      return;
    }
    MUST_HOLD(memory.releases == (memory.adopted ? 1 : 0));
    live_bytes_ -= memory.bytes;
    faults_ += memory.damaged;
    if (!memory.adopted) last_freed_ = memory.begin;
    all_.erase(memory.begin);
    MUST_HOLD(!pool_->starved());  // memory came back
    MUST_HOLD(waiting_ == 0);
  }

  // A pointer that is not the begin of what is alive.
  void free_badly() {
    uint8_t* pointer = input_.flag() ? last_freed_ : users_;
    if (input_.flag() && !handles_.empty()) {
      const Memory& memory = *handles_[input_.u8() % handles_.size()].memory;
      pointer = memory.begin + 1 + input_.u16() % memory.bytes;
    }
    if (pointer == nullptr || all_.contains(pointer)) return;
    on_a_thread([&] { pool_->deallocate(pointer); });
    ++faults_;
  }
  void write_beside() {
    if (handles_.empty()) return;
    Memory& memory = *handles_[input_.u8() % handles_.size()].memory;
    if (memory.adopted || memory.damaged) return;
    memory.begin[input_.flag() ? static_cast<ptrdiff_t>(memory.bytes) : -1] = 0x11;
    memory.damaged = true;
  }

  void inspect() {
    if (handles_.empty()) return;
    const Memory& memory = *handles_[input_.u8() % handles_.size()].memory;
    const uint8_t* inside = memory.begin + input_.u32() % memory.bytes;
    for (size_t i = 0; i < kDevices; ++i) {
      const RegionKeys* keys = pool_->region(inside, i);
      MUST_HOLD((keys != nullptr) == (i < device_count_));
      if (keys == nullptr) continue;
      const ibv_mr mr = devices_[i].region_of(keys->lkey).mr;
      MUST_HOLD(keys->rkey == mr.rkey);
      MUST_HOLD(static_cast<uint8_t*>(mr.addr) <= memory.begin);
      MUST_HOLD(memory.begin + memory.bytes <= static_cast<uint8_t*>(mr.addr) + mr.length);
    }
    if (!memory.adopted) MUST_HOLD(pool_->usable_size(memory.begin) == memory.bytes);
  }

  void add_device() {
    if (device_count_ == kDevices) return;
    const auto index = pool_->add_device(&devices_[device_count_]);
    if (index.ok()) {
      MUST_HOLD(*index == device_count_++);
    } else {
      MUST_HOLD(devices_[device_count_].region_count() == 0);
    }
  }

  void heal() {
    calls_.heal();
    for (FakeDevice& device : devices_) device.heal();
  }

  // Sometimes a device holds on to a block: it is lost until the pool's end.
  void release() {
    FakeDevice* holding = nullptr;
    if (device_count_ > 0 && input_.below(8) == 0) {
      holding = &devices_[input_.u8() % device_count_];
      holding->fail_deregistrations_after(input_.u8() % 3);
    }
    for (uint32_t i = 0; i < 1 + input_.below(2); ++i) pool_->release_unused();
    for (auto& [begin, memory] : all_) {  // which looks at everything, and repairs it
      faults_ += memory->damaged;
      memory->damaged = false;
    }
    if (holding == nullptr) return;
    holding->fail_deregistrations_after(-1);
    // Whatever was not lost is registered with all.
    may_be_lost_ = true;
  }

  void refused(const Status& status, size_t wanted) {
    // Never to be had: with its canaries, and those as wide as the largest alignment, if guarded.
    const size_t most = guarded_ ? kCap - 2 * kBlock : kCap;
    if (wanted == 0 || (wanted > most && status.code() == Code::kInvalidArgument)) {
      MUST_HOLD(status.code() == Code::kInvalidArgument);
      return;
    }
    MUST_HOLD(status.code() == Code::kResourceExhausted);
    MUST_HOLD(!status.message().empty());
    if (input_.flag()) {
      ++waiting_;
      pool_->on_free([this] { --waiting_; });
    } else if (input_.flag()) {
      auto cancelled = std::make_shared<bool>(false);
      pool_->cancel_on_free(pool_->on_free([cancelled] { MUST_HOLD(!*cancelled); }));
      *cancelled = true;
    }
  }

  void compare() {
    const PoolStats stats = pool_->stats();
    MUST_HOLD(stats.registered_bytes <= kCap);
    MUST_HOLD(stats.allocations == all_.size());
    MUST_HOLD(stats.live_bytes == live_bytes_);
    MUST_HOLD(stats.live_bytes + stats.cached_bytes == stats.registered_bytes);
    MUST_HOLD(waiting_ >= 0);
    MUST_HOLD(stats.guard_faults == faults_);
    for (size_t i = 0; i < device_count_ && !may_be_lost_; ++i) {
      MUST_HOLD(devices_[i].registered_bytes() == stats.registered_bytes);
    }
  }

  void end() {
    heal();
    while (!handles_.empty()) drop(handles_.size() - 1);
    compare();
    other_.reset();
    // Canaries take a part of each last block.
    const size_t part = guarded_ ? kBlock / 2 : kBlock;
    std::vector<void*> parts;
    for (auto made = pool_->allocate(part); made.ok(); made = pool_->allocate(part)) {
      parts.push_back(*made);
    }
    MUST_HOLD(may_be_lost_ || parts.size() == kCap / kBlock);
    MUST_HOLD(pool_->stats().registered_bytes == kCap);
    for (void* pointer : parts) pool_->deallocate(pointer);
    pool_.reset();
    for (const FakeDevice& device : devices_) MUST_HOLD(device.region_count() == 0);
  }

  Input& input_;
  const bool guarded_;
  CountedSystemCalls calls_;
  FakeDevice devices_[kDevices];
  size_t device_count_ = 0;
  std::unique_ptr<RegisteredPool> pool_;
  std::optional<OtherThread> other_;

  std::map<uint8_t*, std::unique_ptr<Memory>> all_;
  std::vector<Handle> handles_;
  size_t live_bytes_ = 0;
  uint8_t serial_ = 0;
  uint8_t* last_freed_ = nullptr;
  uint64_t faults_ = 0;
  int waiting_ = 0;
  bool may_be_lost_ = false;
  uint8_t users_[32 << 10];
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  Story(input).tell();
  be::test::expect_no_more_descriptors();
  return 0;
}
