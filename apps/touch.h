// What real users do with payloads: the sender writes its source anew before each request, the
// receiver reads what came. A payload that nobody touches stays in one cache and flatters whoever
// pulls it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace be::apps {

// `value` should differ from one time to the next.
inline void rewrite(uint8_t* bytes, size_t count, uint8_t value) {
  std::memset(bytes, value, count);
}

// One word of each cache line.
inline uint64_t read_all(const uint8_t* bytes, size_t count) {
  constexpr size_t kLine = 64;
  uint64_t sum = 0;
  for (size_t i = 0; i + sizeof(uint64_t) <= count; i += kLine) {
    uint64_t word;
    std::memcpy(&word, bytes + i, sizeof(word));
    sum += word;
  }
  return sum;
}

}  // namespace be::apps
