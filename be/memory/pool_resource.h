// std::pmr over registered memory: containers whose type says nothing of where they live.
//
//   be::PoolResource resource(node->pool());       // or of the default pool: be::PoolResource r;
//   std::pmr::unordered_map<uint64_t, std::pmr::string> names(&resource);
//
// Equal: the same pool, so that each can free what the other allocated. std::pmr's containers
// never take their resource along: `a = std::move(b)` copies where the pools differ
// (pool_allocator.h does not). The pool outlives the resource, which outlives its containers.
//
// Any thread, as the pool. Alignment: any power of two that allocate_aligned takes. Failure is a
// PoolBadAlloc that names the reason.
#pragma once

#include <cstddef>
#include <memory_resource>

#include "be/memory/registered_pool.h"

namespace be {

class PoolResource final : public std::pmr::memory_resource {
 public:
  PoolResource() = default;  // of the default pool (bemalloc.h), whenever that is initialised
  explicit PoolResource(RegisteredPool& pool) : given_pool_(&pool) {}

 private:
  void* do_allocate(size_t bytes, size_t alignment) override;
  void do_deallocate(void* pointer, size_t bytes, size_t alignment) override;
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override;

  RegisteredPool* const given_pool_ = nullptr;
};

}  // namespace be
