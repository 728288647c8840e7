// Memory with several handles, or somebody else's: what a shared Buffer points to.
//
//                          adopted_bytes   release
//   the pool's             0               empty     deallocated
//   lent by its owner      0               set       released: the owner deallocates it
//   adopted                > 0             either    deregistered, then released
//
// Freed by the thread that drops the last handle.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "be/memory/buffer.h"
#include "be/memory/pool_core.h"

namespace be {

struct Buffer::Shared {
  std::atomic<uint32_t> handles = 1;
  memory::PoolCore* core = nullptr;
  uint8_t* memory = nullptr;
  size_t adopted_bytes = 0;
  std::function<void()> release;
};

}  // namespace be
