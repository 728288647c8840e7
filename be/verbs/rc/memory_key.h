// Memory keys: which region, and which life of its table entry.
//
//   key = generation (12 bits, 1 ... 4095) << 20 | index (20 bits)
//
// A region that goes takes its generation with it, so a stale key is refused and never reaches
// the region that took the entry over (until the generation comes round after 4095 lives).
// lkey == rkey. 0 is no key. Pure.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace be::rc {

inline constexpr uint32_t kKeyIndexBits = 20;
inline constexpr uint32_t kMaxKeyIndex = (1u << kKeyIndexBits) - 1;

constexpr uint32_t make_key(uint32_t index, uint32_t generation) {
  return generation << kKeyIndexBits | index;
}
constexpr uint32_t key_index(uint32_t key) { return key & kMaxKeyIndex; }
constexpr uint32_t key_generation(uint32_t key) { return key >> kKeyIndexBits; }
constexpr uint32_t next_generation(uint32_t generation) {
  return generation >= (1u << (32 - kKeyIndexBits)) - 1 ? 1 : generation + 1;
}

// What a key stands for.
struct Region {
  uint64_t address = 0;
  uint64_t length = 0;
  uint32_t access = 0;  // IBV_ACCESS_*

  // Whether [start, start + bytes) lies within, with all rights in `needed`.
  bool allows(uint64_t start, uint64_t bytes, uint32_t needed) const {
    return (access & needed) == needed && start >= address && bytes <= length &&
           start - address <= length - bytes;
  }
};

}  // namespace be::rc
