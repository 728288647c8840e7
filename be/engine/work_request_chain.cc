#include "be/engine/work_request_chain.h"

#include <algorithm>
#include <bit>
#include <cassert>

namespace be {

WorkRequestChain::WorkRequestChain(uint32_t depth, uint32_t window_bytes)
    : depth_(depth),
      mask_(std::bit_ceil(depth) - 1),
      signal_requests_(std::max(1u, depth / 4)),
      signal_bytes_(window_bytes == 0 ? 0 : std::max(1u, window_bytes / 2)) {
  assert(depth >= 1 && depth <= (1u << 20));
}

WorkRequestChain::Prepared WorkRequestChain::prepare(uint32_t bytes) {
  assert(free() > 0);
  ++unsignalled_requests_;
  unsignalled_bytes_ += bytes;
  const bool signalled = unsignalled_requests_ >= signal_requests_ ||
                         (signal_bytes_ != 0 && unsignalled_bytes_ >= signal_bytes_);
  if (signalled) {
    unsignalled_requests_ = 0;
    unsignalled_bytes_ = 0;
  }
  const uint32_t index = prepared_++;
  return {slot_of(index), index & kIndexMask, signalled};
}

void WorkRequestChain::posted(uint32_t count) {
  assert(count <= pending());
  posted_ += count;
  unsignalled_requests_ = 0;  // the last of the batch was signalled
  unsignalled_bytes_ = 0;
}

bool WorkRequestChain::complete(uint32_t index, Range& ended) {
  const uint32_t before = (index - completed_) & kIndexMask;
  if (before >= in_flight()) return false;
  ended = {completed_, before + 1};
  completed_ += ended.count;
  return true;
}

}  // namespace be
