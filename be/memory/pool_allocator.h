// A standard allocator over registered memory: containers whose elements every device can reach.
//
//   std::vector<float, be::PoolAllocator<float>> in_the_default_pool(1000);     // bemalloc.h
//   std::vector<float, be::PoolAllocator<float>> in_this_one(1000, node->pool());
//   node->pool().region(in_this_one.data(), device)                             // its keys
//
// Whose memory a container has, by the standard's traits:
//
//   copy of a container        the pool of the original
//   a = b                      a keeps its pool: where memory lies is a property of the target
//   a = std::move(b), swap     the memory moves, and its pool with it: never a copy, no region
//                              changes; containers of different pools may be moved and swapped
//
// Equal: the same pool, so that each can free what the other allocated. One that was made for
// the default pool equals only its like. The pool outlives its containers.
//
// Any thread, as the pool. Failure is a PoolBadAlloc that names the reason.
#pragma once

#include <cstddef>
#include <limits>
#include <new>
#include <type_traits>

#include "be/memory/bemalloc.h"
#include "be/memory/pool_bad_alloc.h"
#include "be/memory/registered_pool.h"

namespace be {

template <typename T>
class PoolAllocator {
 public:
  using value_type = T;
  using propagate_on_container_copy_assignment = std::false_type;
  using propagate_on_container_move_assignment = std::true_type;
  using propagate_on_container_swap = std::true_type;
  using is_always_equal = std::false_type;

  PoolAllocator() noexcept = default;                                   // the default pool
  PoolAllocator(RegisteredPool& pool) noexcept : given_pool_(&pool) {}  // NOLINT: as std::pmr's
  template <typename U>
  PoolAllocator(const PoolAllocator<U>& other) noexcept  // NOLINT: the standard wants it
      : given_pool_(other.given_pool_) {}

  T* allocate(size_t count) {
    if (count > std::numeric_limits<size_t>::max() / sizeof(T)) throw std::bad_array_new_length();
    return static_cast<T*>(memory::allocate_or_throw(given_pool_, count * sizeof(T), alignof(T)));
  }
  void deallocate(T* pointer, size_t) noexcept { memory::deallocate(given_pool_, pointer); }

  // Null only if it is the default pool that does not exist.
  RegisteredPool* pool() const { return given_pool_ != nullptr ? given_pool_ : bemalloc::pool(); }

  template <typename U>
  bool operator==(const PoolAllocator<U>& other) const noexcept {
    return given_pool_ == other.given_pool_;
  }

 private:
  template <typename U>
  friend class PoolAllocator;

  RegisteredPool* given_pool_ = nullptr;
};

}  // namespace be
