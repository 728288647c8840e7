// The caches of all threads that use one pool.
//
// A thread gets its cache at its first use of the pool and gives it back when it ends (or when
// the pool does, whichever comes first). current() costs two loads and a comparison while a
// thread stays with one pool.
//
// In a forked child no thread has a cache of a pool that was made before: current() is null there,
// at no cost to the parent, and everybody goes the long way, where the pool says why.
//
// Any thread. Caches of pools that are gone are recognised by number and never touched: numbers
// are not reused.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "be/base/fork.h"
#include "be/memory/central_list.h"
#include "be/memory/thread_cache.h"

namespace be::memory {

using CentralLists = std::array<CentralList, kSizeClassCount>;

class ThreadCaches {
 public:
  struct Freed {  // FreedRuns of all threads
    size_t runs = 0;
    size_t bytes = 0;
  };

  ThreadCaches(CentralLists& central, PageHeap& heap);
  ~ThreadCaches();
  ThreadCaches(const ThreadCaches&) = delete;
  ThreadCaches& operator=(const ThreadCaches&) = delete;

  // The calling thread's. Null while it is ending, and in a forked child: then do without.
  ThreadCache* current() {
    ThreadCache* cache = current_if_known();
    return cache != nullptr ? cache : find_or_make();
  }
  // Null also if the thread has not used this pool before, or another one since: for hot paths,
  // which have a slow one to go to.
  ThreadCache* current_if_known() const {
    return last_used.pool_number == number_ ? last_used.cache : nullptr;
  }

  // Moves what all threads keep to the central lists and the heap: whatever was freed before the
  // call is there afterwards (a kernel without membarrier: the calling thread's only). A few
  // microseconds; the caller must not have entered its cache.
  void drain();

  size_t cached_objects(size_t size_class) const;  // in all threads
  Freed freed() const;

  void retire(ThreadCache* cache);  // its thread ends

  bool in_child() const { return fork_guard_.in_child(); }

 private:
  struct LastUsed {
    uint64_t pool_number;  // 0: none
    ThreadCache* cache;
  };
  static thread_local constinit LastUsed last_used;

  ThreadCache* find_or_make();
  ThreadCache* make();
  void empty(ThreadCache& cache);
  void die_in_child();

  CentralLists& central_;
  PageHeap& heap_;
  const uint64_t number_;
  const ForkGuard fork_guard_;
  const ForkWatcher fork_watcher_;
  const bool can_close_;  // the kernel has the membarrier command

  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<ThreadCache>> caches_;
};

}  // namespace be::memory
