// bemalloc's front door: memory that every open device has registered (paper 5.2).
//
// One sparse memfd of the cap's size, mapped once, sealed against resizing; blocks of
// `block_bytes` get their memory at birth, in huge pages where the kernel gives them (shortage is a
// Status, never SIGBUS), and are registered with each device as one region. Larger allocations are
// one run of blocks under one region. Keys never cross regions.
//
//   registered bytes = live + cached      live = handed out, cached = ours to hand out
//   registered bytes <= cap_bytes
//
// allocate, deallocate, region: any thread; O(1) and without a system call in the steady state.
// At the cap allocation fails at once with kResourceExhausted naming the cap: the transport
// makes back-pressure of that (on_free tells when to try again).
//
// Destroying a pool with live allocations is a defect of the caller: it is logged with counts
// and the mapping is kept (no longer registered), so that late frees do no harm.
//
// Inside (docs/memory.md): ThreadCache -> CentralList -> PageHeap -> BlockSource, one concept a
// header.
//
// In a forked child the pool is dead (base/fork.h): inherited Buffers can be read (writing to one
// is a segmentation fault there: the memory is shared with the parent and its NIC), dropped and
// shared further; everything else fails by name, stats() are zero, region() is of no use.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "be/base/status.h"
#include "be/memory/buffer.h"
#include "be/memory/pool_options.h"
#include "be/memory/pool_stats.h"
#include "be/verbs/device.h"

namespace be {

struct RegionKeys {
  uint32_t lkey = 0;
  uint32_t rkey = 0;
};

namespace memory {
class PoolCore;
class SystemCalls;
}  // namespace memory

class RegisteredPool {
 public:
  // Device indices are the order of add_device: first softnic or hardware, 0, 1, ...
  static constexpr size_t kMaxDevices = 8;

  static Result<std::unique_ptr<RegisteredPool>> create(const PoolOptions& options);
  // With the system calls that make blocks replaced, for tests of their failures. They must
  // outlive the pool.
  static Result<std::unique_ptr<RegisteredPool>> create(const PoolOptions& options,
                                                        memory::SystemCalls& calls);
  ~RegisteredPool();
  RegisteredPool(const RegisteredPool&) = delete;
  RegisteredPool& operator=(const RegisteredPool&) = delete;

  // Registers existing and all later blocks with `device`. Returns its index for region().
  // The device must outlive the pool. A failure leaves the pool as it was.
  Result<size_t> add_device(Device* device);

  // Aligned to 16 bytes (64 from 64 bytes on). size 0, or more than the cap, is
  // kInvalidArgument: it would be in vain to try again.
  Result<void*> allocate(size_t size);
  // At a multiple of `alignment`: a power of two, at most block_bytes (kInvalidArgument).
  Result<void*> allocate_aligned(size_t size, size_t alignment);
  void deallocate(void* pointer);
  size_t usable_size(const void* pointer) const;  // of what allocate returned; not interior

  // Keys of the region around `pointer` (interior pointers too) on device `index`; adopted
  // memory is found as well, by a slower search. Unknown memory gives nullptr.
  const RegionKeys* region(const void* pointer, size_t index) const {
    const size_t offset = reinterpret_cast<uintptr_t>(pointer) - base_;
    if (offset >= range_bytes_) return adopted_region(pointer, index);
    const size_t block = offset >> block_shift_;
    if ((device_masks_[block].load(std::memory_order_relaxed) >> index & 1) == 0) return nullptr;
    return &block_keys_[block * kMaxDevices + index];
  }

  // allocate + the handle; size() == size, capacity() >= size. At most 4 GiB.
  Result<Buffer> allocate_buffer(size_t size);

  // The user's own memory as a Buffer: registered here and now and counted against the cap;
  // `release` is called (on any thread) when the last handle is gone and it has been
  // deregistered. On failure the memory stays the caller's and `release` is never called; nor is it
  // if a device refuses to deregister (logged): a NIC may still reach the memory.
  Result<Buffer> adopt(void* memory, size_t size, std::function<void()> release);

  // Memory of this pool as a Buffer, without a copy. Without `release` it is what allocate() gave
  // out, of which the Buffer takes possession. With `release`, it is a part of one allocation that
  // somebody else owns (a container, see vector_buffer.h) and keeps in place until `release` is
  // called (on any thread), when the last handle is gone. On failure nothing has changed hands.
  Result<Buffer> buffer_from(void* memory, size_t size, std::function<void()> release = {});

  // For one whose allocation has just failed. `callback` is called once, soon after memory was
  // given back following the failure (on the freeing thread: be short; post to your I/O
  // thread), or at once, from within on_free, if that has happened already. Returns an id for
  // cancel_on_free, after which the callback neither runs nor will.
  uint64_t on_free(std::function<void()> callback);
  void cancel_on_free(uint64_t id);
  // An allocation has failed, and nothing has been given back since.
  bool starved() const;

  // Deregisters and returns to the system what nobody has needed since the last call, above
  // kept_bytes. For a thread that may block for milliseconds, every few seconds (Node does it).
  void release_unused();
  bool has_surplus() const;  // more than kept_bytes are kept; cheap

  PoolStats stats() const;
  std::vector<SizeClassStats> size_class_stats() const;  // by object_bytes

 private:
  friend class Buffer;

  explicit RegisteredPool(std::unique_ptr<memory::PoolCore> core);
  Result<void*> allocate_uncached(size_t size);
  const RegionKeys* adopted_region(const void* pointer, size_t index) const;
  bool in_one_region(const void* memory, size_t size) const;

  // The core can outlive the pool (see above), so it is what a Buffer remembers.
  std::unique_ptr<memory::PoolCore> core_;

  // What region() reads, by block number; owned by the core. A mask bit says that the device
  // has registered the block.
  uintptr_t base_;
  size_t range_bytes_;
  int block_shift_;
  const std::atomic<uint8_t>* device_masks_;
  const RegionKeys* block_keys_;
};

}  // namespace be
