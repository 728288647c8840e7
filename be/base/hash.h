// Mixing of 64-bit integers: every input bit changes every output bit with probability near 1/2.
//
// Pure, any thread, the same on every machine (placement and initial values depend on it: never
// change a result). Not for secrets: see hmac.h. The function is one step of splitmix64 (Steele,
// Lea and Flood, OOPSLA 2014; constants of Stafford's mix 13), a bijection.
#pragma once

#include <cstdint>

namespace be {

constexpr uint64_t mix64(uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

// Of an ordered pair; nest for more: mix64(mix64(seed, table), key).
constexpr uint64_t mix64(uint64_t first, uint64_t second) { return mix64(mix64(first) ^ second); }

}  // namespace be
