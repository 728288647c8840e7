// How a failed allocation leaves the pool when a container asks: std::bad_alloc, as the contracts
// of standard allocators and std::pmr want it, which here knows the reason.
//
//   catch (const std::bad_alloc& e) { e.what(); }    "memory.cap_bytes = 268435456 is reached: ..."
//
// The only exception of ours, and only for those who use pool_allocator.h or pool_resource.h.
#pragma once

#include <cstddef>
#include <new>
#include <utility>

#include "be/base/status.h"
#include "be/memory/registered_pool.h"

namespace be {

class PoolBadAlloc : public std::bad_alloc {
 public:
  explicit PoolBadAlloc(Status status) noexcept : status_(std::move(status)) {}
  const char* what() const noexcept override { return status_.message().c_str(); }
  const Status& status() const noexcept { return status_; }

 private:
  Status status_;
};

namespace memory {

// For containers, whose pool is `pool`, or bemalloc's if that is null: 0 bytes are a pointer too.
void* allocate_or_throw(RegisteredPool* pool, size_t bytes, size_t alignment);
void deallocate(RegisteredPool* pool, void* pointer) noexcept;

}  // namespace memory
}  // namespace be
