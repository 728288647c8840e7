// The allocator behind RegisteredPool and Buffer.
//
//   size <= 16 KiB   ThreadCache <-> CentralList <-> PageHeap      classes, see size_classes.h
//   up to a block    PageHeap: a run of pages
//   larger           PageHeap: a run of blocks under one region
//   adopted          RegionTable alone
//
// Whatever fails for lack of memory is tried once more after all threads' caches have been
// drained, so that "the cap is reached" means it. From then on the next free goes past the
// caches, so that it helps at once, and tells those who wait (FreeWaiters).
//
// Nothing is counted per operation; what is alive follows from who holds what:
//
//   alive = out of central lists and heap - in threads' caches + adopted
//
// In guard mode every allocation goes round the caches' hot path and through a Guard, whose source
// is the rest of this class. Under AddressSanitizer whatever is not handed out is poisoned.
//
// In a forked child it is dead (base/fork.h): allocations fail by name, memory that is given back
// stays where it is, no lock is taken. allocate and deallocate find out where they have to leave
// the hot path anyway: nobody has a ThreadCache there.
//
// Any thread. Outlives its RegisteredPool if Buffers do.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "be/base/status.h"
#include "be/memory/block_source.h"
#include "be/memory/central_list.h"
#include "be/memory/free_waiters.h"
#include "be/memory/guard.h"
#include "be/memory/page_heap.h"
#include "be/memory/page_table.h"
#include "be/memory/poison.h"
#include "be/memory/pool_options.h"
#include "be/memory/pool_stats.h"
#include "be/memory/thread_caches.h"

namespace be::memory {

class PoolCore {
 public:
  struct Allocation {
    void* pointer = nullptr;
    size_t bytes = 0;  // usable
  };

  PoolCore(std::unique_ptr<BlockSource> blocks, const PoolOptions& options);

  // From the thread's cache, no more: null if it has none, or the size is not small.
  void* allocate_cached(size_t size) {
    return size - 1 < hot_sizes_ ? pop_cached(size_class_of(size)) : nullptr;
  }
  Result<Allocation> allocate(size_t size);
  Result<Allocation> allocate_aligned(size_t size, size_t alignment);
  void deallocate(void* pointer) {
    const size_t offset = static_cast<size_t>(static_cast<uint8_t*>(pointer) - table_.base);
    if (offset < hot_range_bytes_) [[likely]] {
      const uint8_t kind = table_.kinds[offset >> kPageShift];
      if (kind < kSizeClassCount && push_cached(kind, pointer)) [[likely]]
        return;
    }
    deallocate_slow(pointer);
  }
  size_t usable_size(const void* pointer) const;

  Status adopt(void* memory, size_t size);
  // False: a device refuses to let it go, so its owner must not have it back. It stays registered
  // and counted against the cap.
  bool release_adopted(void* memory, size_t size);

  bool in_child() const { return caches_.in_child(); }
  PoolStats stats() const;
  std::vector<SizeClassStats> size_class_stats() const;
  Guard* guard() { return guard_.get(); }  // null but in guard mode
  FreeWaiters& waiters() { return waiters_; }
  BlockSource& blocks() { return *blocks_; }
  void release_unused();
  bool has_surplus() const { return heap_.has_surplus(); }

 private:
  class GuardSource final : public Guard::Source {
   public:
    explicit GuardSource(PoolCore& core) : core_(core) {}
    Result<std::span<uint8_t>> allocate(size_t bytes, size_t alignment) override;
    void deallocate(uint8_t* memory) override;

   private:
    PoolCore& core_;
  };

  void* pop_cached(size_t size_class) {
    ThreadCache* cache = caches_.current_if_known();
    if (cache == nullptr || !cache->enter()) [[unlikely]]
      return nullptr;
    void* object = cache->bin(size_class).pop();
    cache->leave();
    if (kPoisons && object != nullptr) unpoison(object, kSizeClasses[size_class].bytes);
    return object;
  }
  // False: no cache, no room in it, or somebody waits for memory.
  bool push_cached(size_t size_class, void* object) {
    ThreadCache* cache = caches_.current_if_known();
    if (cache == nullptr || waiters_.starved() || !cache->enter()) [[unlikely]]
      return false;
    // While nobody else can take it.
    if (kPoisons) poison(object, kSizeClasses[size_class].bytes);
    const bool pushed = cache->bin(size_class).push(object);
    cache->leave();
    return pushed;
  }
  size_t usable_bytes(uint32_t page, uint8_t kind) const;
  Result<Allocation> allocate_unguarded(size_t size, size_t alignment);
  Result<Allocation> allocate_small(size_t size_class);
  Result<Allocation> allocate_large(size_t size, size_t alignment);
  Status refill(size_t size_class, void*& object);
  Result<uint32_t> take_large(size_t size, size_t alignment, uint8_t& kind);
  Result<uint32_t> take_pages(uint32_t pages, uint32_t alignment);
  void deallocate_slow(void* pointer);
  void deallocate_unguarded(void* pointer);
  void deallocate_small(void* object, size_t size_class);
  void deallocate_large(void* pointer, uint8_t kind);
  void deallocate_pages(uint32_t first_page);
  void tell_the_starved(uint8_t kind);
  void make_room();
  void settle();  // whatever is free is in the heap afterwards, as far as whole spans are

  CentralLists central_;  // first: it is aligned to cache lines
  std::unique_ptr<BlockSource> blocks_;
  const size_t range_bytes_;
  // What the hot paths take: nothing in guard mode.
  const size_t hot_sizes_;
  const size_t hot_range_bytes_;
  PageHeap heap_;
  PageTable table_;
  ThreadCaches caches_;
  FreeWaiters waiters_;
  std::atomic<size_t> adopted_bytes_ = 0;
  std::atomic<size_t> adopted_ = 0;
  GuardSource guard_source_{*this};
  std::unique_ptr<Guard> guard_;  // in guard mode
};

}  // namespace be::memory
