// bemalloc: the one pool that a process shares, with malloc's calls (paper 5.2, figure 3).
//
//   be::bemalloc::init({}, devices);                  RdmaMemoryPool::Init(ibv_ctx)
//   void* block = *be::bemalloc::allocate(size);      RdmaMemoryPool::Allocate(size)
//   be::bemalloc::region(block, 0)->lkey              RdmaMemoryPool::GetMR(block)
//   be::bemalloc::deallocate(block);                  RdmaMemoryPool::Deallocate(block)
//
// Each call is one load more than the pool's own (registered_pool.h), which says what it does;
// what is not here is had from pool(): its stats(), and release_unused(), which no Node calls for
// this pool. Containers: pool_allocator.h, pool_resource.h.
//
//   not initialised --init--> initialised --shutdown--> not initialised (init may come again)
//
// Any thread. init and shutdown exclude each other; no other call may be on its way during
// shutdown, and devices outlive it. Without a shutdown the pool lives until the process ends:
// containers of static life need not care for the order in which they are destroyed.
//
// Failure: while not initialised, allocations fail with kClosed, region() and pool() are null,
// usable_size() is 0. What is freed after shutdown was counted by it, and is left alone; after
// another init that is logged. In a forked child the pool is dead like any other (base/fork.h), and
// init gives the child its own.
#pragma once

#include <atomic>
#include <cstddef>
#include <span>

#include "be/base/status.h"
#include "be/memory/buffer.h"
#include "be/memory/registered_pool.h"
#include "be/verbs/device.h"

namespace be::bemalloc {

namespace internal {
extern constinit std::atomic<RegisteredPool*> default_pool;
Status not_initialised();
void deallocate_without_pool(void* pointer);
}  // namespace internal

// Makes the pool and registers it with `devices`, whose places are the indices for region().
// kAlreadyExists if there is one; any failure leaves all as it was.
Status init(const PoolOptions& options, std::span<Device* const> devices);
// Makes the pool of somebody else, such as a Node's, the default, so that what is allocated here
// can be sent there. It stays its owner's, who calls shutdown before it ends.
Status init(RegisteredPool& pool);

// Destroys the pool of init (options, devices); kInvalidArgument tells how many allocations were
// alive, if any: their memory stays mapped and is no longer registered. A pool of somebody else is
// only let go.
Status shutdown();

inline RegisteredPool* pool() { return internal::default_pool.load(std::memory_order_acquire); }

inline Result<void*> allocate(size_t size) {
  RegisteredPool* const the_pool = pool();
  if (the_pool == nullptr) [[unlikely]]
    return internal::not_initialised();
  return the_pool->allocate(size);
}

inline Result<void*> allocate_aligned(size_t size, size_t alignment) {
  RegisteredPool* const the_pool = pool();
  if (the_pool == nullptr) [[unlikely]]
    return internal::not_initialised();
  return the_pool->allocate_aligned(size, alignment);
}

inline void deallocate(void* pointer) {
  RegisteredPool* const the_pool = pool();
  if (the_pool == nullptr) [[unlikely]]
    return internal::deallocate_without_pool(pointer);
  the_pool->deallocate(pointer);
}

inline const RegionKeys* region(const void* pointer, size_t device_index) {
  RegisteredPool* const the_pool = pool();
  return the_pool == nullptr ? nullptr : the_pool->region(pointer, device_index);
}

inline size_t usable_size(const void* pointer) {
  RegisteredPool* const the_pool = pool();
  return the_pool == nullptr ? 0 : the_pool->usable_size(pointer);
}

inline Result<Buffer> allocate_buffer(size_t size) {
  RegisteredPool* const the_pool = pool();
  if (the_pool == nullptr) [[unlikely]]
    return internal::not_initialised();
  return the_pool->allocate_buffer(size);
}

}  // namespace be::bemalloc
