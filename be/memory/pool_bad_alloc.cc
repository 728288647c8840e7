#include "be/memory/pool_bad_alloc.h"

#include <algorithm>

#include "be/memory/bemalloc.h"

namespace be::memory {
namespace {

constexpr size_t kPoolAlignment = 16;  // of whatever allocate() gives

}  // namespace

void* allocate_or_throw(RegisteredPool* pool, size_t bytes, size_t alignment) {
  if (pool == nullptr) pool = bemalloc::pool();
  if (pool == nullptr) throw PoolBadAlloc(bemalloc::internal::not_initialised());
  const size_t size = std::max<size_t>(bytes, 1);
  auto made =
      alignment <= kPoolAlignment ? pool->allocate(size) : pool->allocate_aligned(size, alignment);
  if (!made.ok()) throw PoolBadAlloc(made.status());
  return *made;
}

void deallocate(RegisteredPool* pool, void* pointer) noexcept {
  if (pool == nullptr) {
    bemalloc::deallocate(pointer);
  } else {
    pool->deallocate(pointer);
  }
}

}  // namespace be::memory
