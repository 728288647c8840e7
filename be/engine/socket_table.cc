#include "be/engine/socket_table.h"

#include <cassert>

namespace be {
namespace {

constexpr uint32_t kFirstBits = 4;

}  // namespace

SocketTable::SocketTable()
    : places_(1u << kFirstBits, kNone), mask_((1u << kFirstBits) - 1), shift_(32 - kFirstBits) {}

uint32_t SocketTable::place_of(SocketId id) const {
  uint32_t place = home_of(id);
  while (places_[place] != kNone && queues_[places_[place]].id != id) place = next(place);
  return place;
}

uint32_t SocketTable::find(SocketId id) const { return places_[place_of(id)]; }

uint32_t SocketTable::find_or_add(SocketId id) {
  uint32_t place = place_of(id);
  if (places_[place] != kNone) return places_[place];
  if (2 * (size_ + 1) > places_.size()) {
    grow();
    place = place_of(id);
  }
  uint32_t slot = slots();
  if (free_.empty()) {
    queues_.emplace_back();
  } else {
    slot = free_.back();
    free_.pop_back();
  }
  queues_[slot].id = id;
  queues_[slot].used = true;
  places_[place] = slot;
  ++size_;
  return slot;
}

void SocketTable::erase(uint32_t slot) {
  assert(queues_[slot].used && queues_[slot].messages.empty());
  // Close the hole: move up whoever would no longer be found from its home.
  uint32_t hole = place_of(queues_[slot].id);
  for (uint32_t place = next(hole); places_[place] != kNone; place = next(place)) {
    const uint32_t home = home_of(queues_[places_[place]].id);
    if (((place - home) & mask_) >= ((place - hole) & mask_)) {
      places_[hole] = places_[place];
      hole = place;
    }
  }
  places_[hole] = kNone;
  queues_[slot] = SocketQueue();
  free_.push_back(slot);
  --size_;
}

void SocketTable::grow() {
  const std::vector<uint32_t> old = std::move(places_);
  places_.assign(2 * old.size(), kNone);
  mask_ = static_cast<uint32_t>(places_.size()) - 1;
  --shift_;
  for (const uint32_t slot : old) {
    if (slot != kNone) places_[place_of(queues_[slot].id)] = slot;
  }
}

}  // namespace be
