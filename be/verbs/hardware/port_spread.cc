#include "be/verbs/hardware/port_spread.h"

#include <algorithm>
#include <cassert>

namespace be::hardware {

uint8_t PortSpread::take() {
  assert(!queue_pairs_.empty());
  const auto least = std::min_element(queue_pairs_.begin(), queue_pairs_.end());
  ++*least;
  return static_cast<uint8_t>(least - queue_pairs_.begin() + 1);
}

void PortSpread::give_back(uint8_t port) {
  assert(port >= 1 && port <= queue_pairs_.size() && queue_pairs_[port - 1] > 0);
  --queue_pairs_[port - 1];
}

}  // namespace be::hardware
