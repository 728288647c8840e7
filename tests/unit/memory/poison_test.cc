#include "be/memory/poison.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

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

}  // namespace
}  // namespace be::memory
