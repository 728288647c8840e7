// What real users do with payloads (PEERS.md): the sender writes its source anew before each
// request, the receiver reads what came. A payload that nobody touches stays in one cache and
// flatters whoever pulls it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "apps/touch.h"

namespace be::bench {

inline void rewrite(uint8_t* bytes, size_t count) {
  static uint8_t value = 0;
  std::memset(bytes, ++value, count);
}

using apps::read_all;

// One byte of each page, and the last: what a page costs when it is first used shows.
inline void write_each_page(void* memory, size_t count) {
  constexpr size_t kPage = 4096;
  auto* bytes = static_cast<volatile uint8_t*>(memory);
  for (size_t at = 0; at < count; at += kPage) bytes[at] = 1;
  bytes[count - 1] = 1;
}

}  // namespace be::bench
