// The send window (Cwnd): bytes of messages posted and not completed never exceed it (paper 6.3).
//
//   in_flight <= limit        limit 0: no window
//
// Control sends are exempt. Pure; owned by one Engine, used on its I/O thread only.
#pragma once

#include <cassert>
#include <cstdint>

namespace be {

class SendWindow {
 public:
  explicit SendWindow(uint32_t limit_bytes) : limit_(limit_bytes) {}

  uint64_t in_flight() const { return in_flight_; }
  bool fits(uint32_t bytes) const { return limit_ == 0 || in_flight_ + bytes <= limit_; }
  void post(uint32_t bytes) {
    assert(fits(bytes));
    in_flight_ += bytes;
  }
  void complete(uint32_t bytes) {
    assert(bytes <= in_flight_);
    in_flight_ -= bytes;
  }

 private:
  uint32_t limit_;
  uint64_t in_flight_ = 0;
};

}  // namespace be
