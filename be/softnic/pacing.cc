#include "be/softnic/pacing.h"

#include <algorithm>
#include <bit>

namespace be::softnic {

std::chrono::nanoseconds Link::time_of(uint32_t bytes) const {
  constexpr uint64_t kBitsAndNanoseconds = uint64_t{8} * 1'000'000'000;
  // Fits 64 bits: messages of RC have at most 2^31 bytes, kMinLinkRate makes seconds of that.
  return std::chrono::nanoseconds((bytes * kBitsAndNanoseconds + bits_per_second_ - 1) /
                                  bits_per_second_);
}

Link::Clock::time_point Link::take(uint32_t bytes, Clock::time_point ready) {
  const Clock::rep time = time_of(bytes).count();
  Clock::rep free_at = free_at_.load(std::memory_order_relaxed);
  Clock::rep left = 0;
  do {
    left = std::max(free_at, ready.time_since_epoch().count()) + time;
  } while (!free_at_.compare_exchange_weak(free_at, left, std::memory_order_relaxed));
  return Clock::time_point(Clock::duration(left));
}

Pacing::Pacing(Link& link, std::chrono::nanoseconds completion_delay, uint32_t send_depth)
    : link_(link),
      completion_delay_(completion_delay),
      mask_(std::bit_ceil(send_depth) - 1),
      posted_(new Clock::time_point[mask_ + 1]),
      executed_(new Clock::time_point[mask_ + 1]) {}

Pacing::Clock::time_point Pacing::leaves(uint32_t index, uint32_t length) {
  if (!on_link_) {
    left_ = link_.take(length, std::max(posted_[index & mask_], left_));
    on_link_ = true;
  }
  return left_;
}

Pacing::Clock::time_point Pacing::release(rc::SendQueue& sends) const {
  if (!sends.holds_back()) return Clock::time_point::max();
  const auto now = Clock::now();
  do {
    const auto at = executed_[sends.next_to_release() & mask_] + completion_delay_;
    if (at > now) return at;
    sends.release_next();
  } while (sends.holds_back());
  return Clock::time_point::max();
}

}  // namespace be::softnic
