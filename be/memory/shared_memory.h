// Memory with several handles, or an adopter's: what a shared Buffer points to.
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
  size_t adopted_bytes = 0;       // 0: the pool's own memory
  std::function<void()> release;  // of adopted memory
};

}  // namespace be
