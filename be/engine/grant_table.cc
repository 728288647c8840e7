#include "be/engine/grant_table.h"

#include <cassert>

namespace be {

GrantTable::GrantTable(uint32_t grants, uint64_t budget_bytes)
    : slots_(grants), grants_(grants), budget_(budget_bytes) {
  assert(grants >= 2 && grants <= kMaxGrants);
}

bool GrantTable::may_open(MessageClass klass, uint64_t bytes) const {
  if (!slots_.may_open(klass)) return false;
  if (bytes_[static_cast<int>(klass)] == 0) return true;  // alone among its class
  const uint64_t share = klass == MessageClass::kReply ? budget_ : budget_ - budget_ / 4;
  return open_bytes() + bytes <= share;
}

GrantId GrantTable::open(MessageClass klass, uint64_t bytes) {
  assert(may_open(klass, bytes) && bytes > 0);
  const uint32_t slot = slots_.open();
  Grant& grant = grants_[slot];
  grant.bytes = bytes;
  grant.klass = klass;
  grant.generation = (grant.generation + 1) & kGenerationMask;
  if (grant.generation == 0) grant.generation = 1;
  bytes_[static_cast<int>(klass)] += bytes;
  ++given_;
  return grant_of(slot);
}

bool GrantTable::is_open(GrantId grant) const {
  const uint32_t slot = slot_of(grant);
  return slots_.is_open(slot) && grants_[slot].generation == (grant & kGenerationMask);
}

std::optional<uint32_t> GrantTable::close(GrantId grant) {
  if (!is_open(grant)) return std::nullopt;
  const uint32_t slot = slot_of(grant);
  bytes_[static_cast<int>(grants_[slot].klass)] -= grants_[slot].bytes;
  slots_.close(slot);
  ++closed_;
  return slot;
}

}  // namespace be
