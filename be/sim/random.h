// Random draws of a simulation: one seed, always the same sequence, on every machine.
//
// Pure. fork() gives an independent stream, so that a draw more in one place does not shift the
// draws of another.
#pragma once

#include <cstddef>
#include <cstdint>

#include "be/base/hash.h"
#include "be/base/time.h"

namespace be::sim {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(mix64(seed)) {}

  uint64_t next() { return mix64(state_++); }
  uint64_t below(uint64_t bound) { return bound < 2 ? 0 : next() % bound; }
  uint64_t between(uint64_t low, uint64_t high) { return low + below(high - low + 1); }
  bool one_in(uint64_t count) { return below(count) == 0; }
  Nanoseconds between(Nanoseconds low, Nanoseconds high) {
    return Nanoseconds(
        between(static_cast<uint64_t>(low.count()), static_cast<uint64_t>(high.count())));
  }
  // Each power of two between as likely as the others: small values are not rare.
  uint64_t spread(uint64_t low, uint64_t high);

  template <typename T, size_t N>
  T pick(const T (&values)[N]) {
    return values[below(N)];
  }

  Random fork() { return Random(next()); }

 private:
  uint64_t state_;
};

inline uint64_t Random::spread(uint64_t low, uint64_t high) {
  uint64_t span = high - low;
  int bits = 0;
  while (span >> bits != 0) ++bits;
  const uint64_t mask = (uint64_t{1} << between(0, static_cast<uint64_t>(bits))) - 1;
  const uint64_t value = low + (next() & mask);
  return value > high ? high : value;
}

}  // namespace be::sim
