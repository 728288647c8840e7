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
// In a forked child it is dead (base/fork.h): allocations fail by name, memory that is given back
// stays where it is, no lock is taken. allocate and deallocate find out where they have to leave
// the hot path anyway: nobody has a ThreadCache there.
//
// Any thread. Outlives its RegisteredPool if Buffers do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "be/base/status.h"
#include "be/memory/block_source.h"
#include "be/memory/central_list.h"
#include "be/memory/free_waiters.h"
#include "be/memory/page_heap.h"
#include "be/memory/registered_pool.h"
#include "be/memory/thread_caches.h"

namespace be::memory {

class PoolCore {
 public:
  struct Allocation {
    void* pointer = nullptr;
    size_t bytes = 0;  // usable
  };

  explicit PoolCore(std::unique_ptr<BlockSource> blocks);

  Result<Allocation> allocate(size_t size) {
    if (size - 1 < kMaxSmallBytes) [[likely]] {
      const size_t size_class = size_class_of(size);
      if (void* object = pop_cached(size_class)) [[likely]] {
        return Allocation{object, kSizeClasses[size_class].bytes};
      }
      return allocate_small(size_class);
    }
    return allocate_large(size);
  }
  void deallocate(void* pointer);
  size_t usable_size(const void* pointer) const;

  Status adopt(void* memory, size_t size);
  void release_adopted(void* memory, size_t size);

  bool in_child() const { return caches_.in_child(); }
  PoolStats stats() const;
  FreeWaiters& waiters() { return waiters_; }
  BlockSource& blocks() { return *blocks_; }

 private:
  void* pop_cached(size_t size_class) {
    ThreadCache* cache = caches_.current();
    if (cache == nullptr || !cache->enter()) [[unlikely]]
      return nullptr;
    ThreadCache::Bin& bin = cache->bin(size_class);
    void* object = bin.count > 0 ? bin.objects[--bin.count] : nullptr;
    cache->leave();
    if (object != nullptr) cache->live().add_by_owner(1, kSizeClasses[size_class].bytes);
    return object;
  }
  Result<Allocation> allocate_small(size_t size_class);
  Result<Allocation> allocate_large(size_t size);
  Status refill(size_t size_class, void*& object);
  Result<uint32_t> take_large(size_t size, uint8_t& kind);
  void deallocate_small(void* object, size_t size_class);
  void deallocate_large(void* pointer, uint8_t kind);
  void count_live(int64_t count, int64_t bytes);
  void make_room();

  std::unique_ptr<BlockSource> blocks_;
  PageHeap heap_;
  PageTable table_;
  CentralLists central_;
  ThreadCaches caches_;
  FreeWaiters waiters_;
};

}  // namespace be::memory
