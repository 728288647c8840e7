#include "be/memory/poison.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "be/memory/registered_pool.h"

namespace be::memory {
namespace {

alignas(8) uint8_t memory[256];

// Through a pointer: the compiler leaves out checks of what it sees to be inside a variable.
uint8_t* volatile begin = memory;
void write_at(size_t offset) { begin[offset] = 1; }

TEST(Poison, PoisonedMemoryIsTouchedUnderAddressSanitizerOnlyToDie) {
  poison(memory + 64, 128);
  write_at(63);
  write_at(192);
  if constexpr (kPoisons) {
    EXPECT_DEATH(write_at(64), "use-after-poison");
    EXPECT_DEATH(write_at(191), "use-after-poison");
  } else {
    write_at(64);
  }
  unpoison(memory + 64, 128);
  write_at(64);
  write_at(191);
}

TEST(Poison, ThePartThatIsHandedOutMayEndAtAnyByte) {
  poison(memory, 64);
  unpoison(memory, 21);
  write_at(20);
  if constexpr (kPoisons) {
    EXPECT_DEATH(write_at(21), "use-after-poison");
  }
  unpoison(memory, 64);
  write_at(21);
}

TEST(Poison, WhatAPoolHasNotHandedOutIsPoisoned) {
  auto pool = std::move(*RegisteredPool::create({.block_bytes = 1 << 20, .cap_bytes = 8 << 20}));
  for (const size_t size : {100, 5000, 100000, 2000000}) {
    auto* allocated = static_cast<uint8_t*>(*pool->allocate(size));
    const size_t usable = pool->usable_size(allocated);
    std::memset(allocated, 1, usable);
    begin = allocated;
    pool->deallocate(allocated);
    if constexpr (kPoisons) {
      EXPECT_DEATH(write_at(0), "use-after-poison") << size;
      EXPECT_DEATH(write_at(usable - 1), "use-after-poison") << size;
    }
  }
  begin = memory;
}

}  // namespace
}  // namespace be::memory
