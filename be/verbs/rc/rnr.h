// Receiver not ready: how long a sender waits before it tries again.
//
// The codes of ibv_qp_attr::min_rnr_timer (InfiniBand specification table 46). Beware: 0 is
// the longest. Pure.
#pragma once

#include <chrono>
#include <cstdint>

namespace be::rc {

constexpr std::chrono::microseconds rnr_delay(uint8_t min_rnr_timer) {
  constexpr uint32_t kMicroseconds[32] = {
      655360, 10,    20,    30,    40,    60,     80,     120,    160,    240,   320,
      480,    640,   960,   1280,  1920,  2560,   3840,   5120,   7680,   10240, 15360,
      20480,  30720, 40960, 61440, 81920, 122880, 163840, 245760, 327680, 491520};
  return std::chrono::microseconds(kMicroseconds[min_rnr_timer & 31]);
}

}  // namespace be::rc
