// What one thread keeps for itself: free objects of each size class, and the page runs that it has
// freed since it last took one.
//
//   bin       an array of pointers, newest on top; 0 <= count <= limit
//   freed     up to kFreedRuns runs of at most kFreedPages pages together. They go back under the
//             lock that the next large allocation takes anyway, so a thread that replaces large
//             memory takes one lock and not two.
//
// Its owner enters it without a lock or an atomic read-modify-write; another thread can close
// it, which costs that thread a system call and the owner nothing:
//
//   owner                              another thread
//   busy = true                        closed = true
//   (compiler barrier)                 membarrier(2): a full fence in every running thread
//   closed? then go round the cache    wait while busy; the contents are ours; closed = false
//   ... push, pop ...
//   busy = false (release)
//
// Either the owner sees `closed`, or the other sees `busy`: the fence that the owner does not
// pay for is executed for it. (Dice et al., "Asymmetric Dekker synchronization".)
//
// Counts are written by whoever is inside and read by anybody, for statistics.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "be/memory/size_classes.h"

namespace be::memory {

// Written by one thread at a time, read by all.
class SharedCount {
 public:
  uint32_t get() const { return value_.load(std::memory_order_relaxed); }
  void set(uint32_t value) { value_.store(value, std::memory_order_relaxed); }

 private:
  std::atomic<uint32_t> value_ = 0;
};

class alignas(64) ThreadCache {
 public:
  class Bin {
   public:
    uint32_t count() const { return count_.get(); }
    uint32_t room() const { return limit_ - count_.get(); }
    void* pop() {  // null: empty
      const uint32_t count = count_.get();
      if (count == 0) [[unlikely]]
        return nullptr;
      count_.set(count - 1);
      return objects_[count - 1];
    }
    bool push(void* object) {  // false: full
      const uint32_t count = count_.get();
      if (count == limit_) [[unlikely]]
        return false;
      objects_[count] = object;
      count_.set(count + 1);
      return true;
    }
    size_t push_all(std::span<void* const> objects);  // how many had room
    // The older ones go: the newer are warm.
    size_t take_oldest(size_t most, void** objects);

   private:
    friend class ThreadCache;
    SharedCount count_;
    uint32_t limit_ = 0;
    void** objects_ = nullptr;
  };

  class FreedRuns {
   public:
    static constexpr size_t kRuns = 8;
    static constexpr uint32_t kPages = 512;  // 2 MiB

    bool push(uint32_t first_page, uint32_t pages) {  // false: full
      const uint32_t count = count_.get();
      if (count == kRuns || pages_.get() + pages > kPages) return false;
      first_pages_[count] = first_page;
      count_.set(count + 1);
      pages_.set(pages_.get() + pages);
      return true;
    }
    size_t take_all(std::span<uint32_t> first_pages);  // of at least kRuns; how many
    uint32_t count() const { return count_.get(); }
    uint32_t pages() const { return pages_.get(); }

   private:
    SharedCount count_;
    SharedCount pages_;
    std::array<uint32_t, kRuns> first_pages_;
  };

  ThreadCache();

  // Owner. False: closed by another thread, do without the cache this time.
  bool enter() {
    busy_.store(true, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (!closed_.load(std::memory_order_acquire)) [[likely]]
      return true;
    leave();
    return false;
  }
  void leave() { busy_.store(false, std::memory_order_release); }

  Bin& bin(size_t size_class) { return bins_[size_class]; }  // entered or closed; count(): always
  FreedRuns& freed() { return freed_; }                      // likewise

  // Another thread, one at a time; between close() and asking busy(), membarrier.
  void close() { closed_.store(true, std::memory_order_seq_cst); }
  bool busy() const { return busy_.load(std::memory_order_acquire); }
  void open() { closed_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> busy_ = false;
  std::atomic<bool> closed_ = false;
  FreedRuns freed_;
  std::array<Bin, kSizeClassCount> bins_;
  std::array<void*, kCachedObjectsInAll> slots_;
};

}  // namespace be::memory
