// Time inside ByteExpress: nanoseconds since an arbitrary start, read from an injected Clock.
//
// Only base/ knows the kernel's clock (blueprint 3): the simulator replaces it by virtual time.
#pragma once

#include <chrono>

namespace be {

using Nanoseconds = std::chrono::nanoseconds;

// Tag: points of this time are comparable within one World only.
struct MonotonicTime {
  using duration = Nanoseconds;
};
using Time = std::chrono::time_point<MonotonicTime, Nanoseconds>;

using namespace std::chrono_literals;  // 5ms, 40us

inline constexpr Time kNever = Time::max();

// `start + delay` without overflow: waiting "for ever" stays for ever.
inline Time saturating_add(Time start, Nanoseconds delay) {
  return delay > kNever - start ? kNever : start + delay;
}

class Clock {
 public:
  virtual ~Clock() = default;
  virtual Time now() const = 0;  // any thread; never goes back
};

}  // namespace be
