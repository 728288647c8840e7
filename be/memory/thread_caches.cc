#include "be/memory/thread_caches.h"

#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <unordered_map>

#include "be/base/fork.h"

namespace be::memory {
namespace {

bool membarrier(int command) { return ::syscall(SYS_membarrier, command, 0, 0) == 0; }

// Pools that are alive, by number. Held while a thread gives its caches back, so that a pool
// cannot end meanwhile.
struct LivePools {
  std::mutex mutex;
  std::unordered_map<uint64_t, ThreadCaches*> by_number;
  uint64_t last_number = 0;
};

LivePools& live_pools() {
  // Threads may end after static destructors have run.
  static LivePools* const kPools = [] {
    auto* made = new LivePools;
    keep_across_forks(made->mutex);
    return made;
  }();
  return *kPools;
}

// No forked child may find that another thread was just making it.
[[maybe_unused]] const LivePools& kBeforeForks = live_pools();

uint64_t enlist(ThreadCaches* caches) {
  LivePools& pools = live_pools();
  std::lock_guard lock(pools.mutex);
  pools.by_number.emplace(++pools.last_number, caches);
  return pools.last_number;
}

// One thread's caches in all pools that it has used.
struct OfThisThread {
  struct Entry {
    uint64_t pool_number;
    ThreadCache* cache;
  };
  std::vector<Entry> entries;

  ~OfThisThread();
  void forget_dead_pools() {
    LivePools& pools = live_pools();
    std::lock_guard lock(pools.mutex);
    std::erase_if(entries,
                  [&](const Entry& entry) { return !pools.by_number.contains(entry.pool_number); });
  }
};

thread_local constinit bool thread_is_ending = false;
thread_local OfThisThread of_this_thread;

OfThisThread::~OfThisThread() {
  thread_is_ending = true;
  LivePools& pools = live_pools();
  std::lock_guard lock(pools.mutex);
  for (const Entry& entry : entries) {
    const auto pool = pools.by_number.find(entry.pool_number);
    if (pool != pools.by_number.end()) pool->second->retire(entry.cache);
  }
}

}  // namespace

thread_local constinit ThreadCaches::LastUsed ThreadCaches::last_used = {0, nullptr};

ThreadCaches::ThreadCaches(CentralLists& central, PageHeap& heap)
    : central_(central),
      heap_(heap),
      number_(enlist(this)),
      fork_watcher_([](void* self) { static_cast<ThreadCaches*>(self)->die_in_child(); }, this),
      can_close_(membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)) {}

ThreadCaches::~ThreadCaches() {
  LivePools& pools = live_pools();
  std::lock_guard lock(pools.mutex);
  pools.by_number.erase(number_);
}

// The only thread of the child is the one that calls this: others have no caches there yet.
void ThreadCaches::die_in_child() {
  live_pools().by_number.erase(number_);
  if (last_used.pool_number == number_) last_used = {0, nullptr};
}

ThreadCache* ThreadCaches::find_or_make() {
  if (thread_is_ending || fork_guard_.in_child()) return nullptr;
  auto& entries = of_this_thread.entries;
  const auto found = std::find_if(entries.begin(), entries.end(),
                                  [&](const auto& entry) { return entry.pool_number == number_; });
  ThreadCache* cache = found != entries.end() ? found->cache : make();
  last_used = {number_, cache};
  return cache;
}

ThreadCache* ThreadCaches::make() {
  of_this_thread.forget_dead_pools();
  auto cache = std::make_unique<ThreadCache>();
  of_this_thread.entries.push_back({number_, cache.get()});
  std::lock_guard lock(mutex_);
  caches_.push_back(std::move(cache));
  return caches_.back().get();
}

void ThreadCaches::drain() {
  if (!can_close_) {
    ThreadCache* own = current();
    std::lock_guard lock(mutex_);
    if (own != nullptr) empty(*own);
    return;
  }
  std::lock_guard lock(mutex_);
  for (const auto& cache : caches_) cache->close();
  membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
  for (const auto& cache : caches_) {
    // Its owner is between enter() and leave(): a dozen instructions, unless it was preempted.
    while (cache->busy()) ::sched_yield();
    empty(*cache);
    cache->open();
  }
}

void ThreadCaches::retire(ThreadCache* cache) {
  std::lock_guard lock(mutex_);
  last_used = {0, nullptr};  // called on the cache's thread
  empty(*cache);
  std::erase_if(caches_, [&](const auto& owned) { return owned.get() == cache; });
}

void ThreadCaches::empty(ThreadCache& cache) {
  std::array<void*, kMaxCachedObjects> objects;
  for (size_t i = 0; i < kSizeClassCount; ++i) {
    const size_t count = cache.bin(i).take_oldest(objects.size(), objects.data());
    if (count > 0) central_[i].give({objects.data(), count});
  }
  std::array<uint32_t, ThreadCache::FreedRuns::kRuns> freed;
  const size_t count = cache.freed().take_all(freed);
  if (count > 0) heap_.free_pages({freed.data(), count});
}

size_t ThreadCaches::cached_objects(size_t size_class) const {
  std::lock_guard lock(mutex_);
  size_t sum = 0;
  for (const auto& cache : caches_) sum += cache->bin(size_class).count();
  return sum;
}

ThreadCaches::Freed ThreadCaches::freed() const {
  std::lock_guard lock(mutex_);
  Freed sum;
  for (const auto& cache : caches_) {
    sum.runs += cache->freed().count();
    sum.bytes += size_t{cache->freed().pages()} * kPageBytes;
  }
  return sum;
}

}  // namespace be::memory
