// A bounded set of numbered slots that requests and replies draw from, replies owning the last
// quarter. The base of grants (receiver) and of unanswered WriteRequests (sender).
//
//   open + free == size
//
// Pure; owned by one Engine, used on its I/O thread only.
#pragma once

#include <cstdint>
#include <vector>

#include "be/engine/frame_kind.h"

namespace be {

class SlotTable {
 public:
  // `usable` of the slots may be open at a time (the peer may allow fewer than we have).
  explicit SlotTable(uint32_t size);
  void limit(uint32_t usable) { usable_ = usable < size() ? usable : size(); }

  uint32_t size() const { return static_cast<uint32_t>(is_open_.size()); }
  uint32_t open_count() const { return open_; }
  bool may_open(MessageClass klass) const {
    return open_ < usable_ && may_take(klass, usable_ - open_, usable_);
  }
  uint32_t open();  // requires may_open of some class
  bool is_open(uint32_t slot) const { return slot < size() && is_open_[slot]; }
  void close(uint32_t slot);  // requires is_open(slot)

 private:
  std::vector<uint8_t> is_open_;
  std::vector<uint32_t> free_;
  uint32_t usable_;
  uint32_t open_ = 0;
};

}  // namespace be
