// What one thread keeps of each size class: an array of pointers, newest on top.
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
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "be/memory/size_classes.h"

namespace be::memory {

// Allocations alive and their usable bytes. A thread frees what others have allocated, so one
// thread's share may be negative; the sum over all is right once they are quiet.
struct LiveCount {
  std::atomic<int64_t> allocations = 0;
  std::atomic<int64_t> bytes = 0;

  void add_by_owner(int64_t count, int64_t size) {  // one thread only writes
    allocations.store(allocations.load(std::memory_order_relaxed) + count,
                      std::memory_order_relaxed);
    bytes.store(bytes.load(std::memory_order_relaxed) + size, std::memory_order_relaxed);
  }
  void add(int64_t count, int64_t size) {
    allocations.fetch_add(count, std::memory_order_relaxed);
    bytes.fetch_add(size, std::memory_order_relaxed);
  }
};

class alignas(64) ThreadCache {
 public:
  struct Bin {
    uint32_t count = 0;
    uint32_t limit = 0;
    void** objects = nullptr;
  };

  ThreadCache() {
    size_t offset = 0;
    for (size_t i = 0; i < kSizeClassCount; ++i) {
      bins_[i] = {.count = 0, .limit = kSizeClasses[i].cached, .objects = &slots_[offset]};
      offset += kSizeClasses[i].cached;
    }
  }

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

  Bin& bin(size_t size_class) { return bins_[size_class]; }  // entered or closed
  LiveCount& live() { return live_; }

  // Another thread, one at a time; between close() and asking busy(), membarrier.
  void close() { closed_.store(true, std::memory_order_seq_cst); }
  bool busy() const { return busy_.load(std::memory_order_acquire); }
  void open() { closed_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> busy_ = false;
  std::atomic<bool> closed_ = false;
  LiveCount live_;
  std::array<Bin, kSizeClassCount> bins_;
  std::array<void*, kCachedObjectsInAll> slots_;
};

}  // namespace be::memory
