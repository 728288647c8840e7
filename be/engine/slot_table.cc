#include "be/engine/slot_table.h"

#include <cassert>

namespace be {

SlotTable::SlotTable(uint32_t size) : is_open_(size), usable_(size) {
  free_.reserve(size);
  for (uint32_t slot = size; slot > 0; --slot) free_.push_back(slot - 1);
}

uint32_t SlotTable::open() {
  assert(open_ < usable_);
  const uint32_t slot = free_.back();
  free_.pop_back();
  is_open_[slot] = 1;
  ++open_;
  return slot;
}

void SlotTable::close(uint32_t slot) {
  assert(is_open(slot));
  is_open_[slot] = 0;
  free_.push_back(slot);
  --open_;
}

}  // namespace be
