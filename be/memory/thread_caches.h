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
  explicit ThreadCaches(CentralLists& central);
  ~ThreadCaches();
  ThreadCaches(const ThreadCaches&) = delete;
  ThreadCaches& operator=(const ThreadCaches&) = delete;

  // The calling thread's. Null while it is ending, and in a forked child: then do without.
  ThreadCache* current() {
    if (last_used.pool_number == number_) [[likely]]
      return last_used.cache;
    return find_or_make();
  }

  // Moves what all threads keep to the central lists: whatever was freed before the call is
  // there afterwards (a kernel without membarrier: the calling thread's only). A few
  // microseconds; the caller must not have entered its cache.
  void drain();

  int64_t live_allocations() const;
  int64_t live_bytes() const;
  LiveCount& ownerless() { return ownerless_; }  // counts of those without a cache

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
  const uint64_t number_;
  const ForkGuard fork_guard_;
  const ForkWatcher fork_watcher_;
  const bool can_close_;  // the kernel has the membarrier command

  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<ThreadCache>> caches_;
  LiveCount ownerless_;
};

}  // namespace be::memory
