#include "be/engine/keepalive.h"

#include <algorithm>

namespace be {

Keepalive::Keepalive(Nanoseconds interval, Nanoseconds timeout, Nanoseconds peer_interval,
                     Time start)
    : interval_(interval), due_(saturating_add(start, interval)) {
  const Nanoseconds needed = std::max(timeout, 3 * peer_interval);
  limit_ = static_cast<uint32_t>((needed + interval - Nanoseconds(1)) / interval);
}

Keepalive::Verdict Keepalive::tick(Time now, uint64_t heard) {
  if (now < due_) return {};
  const bool late = now - due_ > interval_;
  due_ = saturating_add(now, interval_);

  if (heard > heard_) {
    heard_ = heard;
    silent_ticks_ = 0;
  } else if (late) {
    silent_ticks_ = 0;
  } else {
    ++silent_ticks_;
  }

  Verdict verdict;
  verdict.dead = silent_ticks_ >= limit_;
  if (!writing_) {
    writing_ = true;
    verdict.write = ++sequence_;
  }
  return verdict;
}

}  // namespace be
