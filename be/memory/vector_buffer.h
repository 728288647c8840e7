// A vector that lives in registered memory becomes a Buffer, without a copy.
//
//   std::vector<float, PoolAllocator<float>> gradients(n, node->pool());    fill it, then
//   be::vector_buffer(node->pool(), std::move(gradients))                   send that
//
//   Buffer ---> the vector, moved to the heap ---> its elements, where they were
//
// The vector is destroyed, and its memory given back, when the last handle of the Buffer is gone,
// on whatever thread that happens. Costs two small allocations outside the pool, so it is for
// vectors of kilobytes and more. Fewer elements than capacity() are fine.
//
// Any vector whose memory is `pool`'s: by PoolAllocator, or std::pmr with a PoolResource.
// Failure: kInvalidArgument if its memory is somewhere else (RegisteredPool::adopt registers such
// on the spot) or too large for a Buffer; the vector is then as it was.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "be/base/status.h"
#include "be/memory/buffer.h"
#include "be/memory/registered_pool.h"

namespace be {

template <typename T, typename Allocator>
Result<Buffer> vector_buffer(RegisteredPool& pool, std::vector<T, Allocator>&& vector) {
  static_assert(std::is_trivially_copyable_v<T> && !std::is_same_v<T, bool>,
                "a message is the bytes of its elements");
  if (vector.empty()) return Buffer();
  auto* const held = new std::vector<T, Allocator>(std::move(vector));
  auto buffer = pool.buffer_from(held->data(), held->size() * sizeof(T), [held] { delete held; });
  if (!buffer.ok()) {
    vector = std::move(*held);
    delete held;
  }
  return buffer;
}

}  // namespace be
