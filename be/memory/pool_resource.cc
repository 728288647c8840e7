#include "be/memory/pool_resource.h"

#include "be/memory/pool_bad_alloc.h"

namespace be {

void* PoolResource::do_allocate(size_t bytes, size_t alignment) {
  return memory::allocate_or_throw(given_pool_, bytes, alignment);
}

void PoolResource::do_deallocate(void* pointer, size_t, size_t) {
  memory::deallocate(given_pool_, pointer);
}

bool PoolResource::do_is_equal(const std::pmr::memory_resource& other) const noexcept {
  const auto* another = dynamic_cast<const PoolResource*>(&other);
  return another != nullptr && another->given_pool_ == given_pool_;
}

}  // namespace be
