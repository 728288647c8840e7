// The grants that we have given: buffers that the peer may write into.
//
//   immediate and frame field:   31 ......... 12 | 11 ........ 0
//                                slot (20 bits)  | generation (12 bits, never 0)
//
//   given == open + closed
//   open <= g;  of the g, and of the byte budget, the last quarter is for replies
//
//   [closed] --open--> [open] --close: its WRITE_WITH_IMM, the writer's GrantDone--> [closed]
//                                (or all at once: quiesced(qp))
//
// A closed grant's value is stale: the slot's next grant has another generation. Whoever names a
// stale or unknown grant has broken the protocol. A message larger than its share of the budget
// is granted alone among its class, so that it cannot wait for ever.
//
// Pure: the engine keeps the Buffer of slot s beside. Owned by one Engine, used on its I/O thread
// only.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "be/engine/frame_kind.h"
#include "be/engine/slot_table.h"

namespace be {

using GrantId = uint32_t;  // 0 is never given

class GrantTable {
 public:
  static constexpr uint32_t kMaxGrants = 1u << 20;
  static constexpr uint32_t kGenerationMask = (1u << 12) - 1;

  GrantTable(uint32_t grants, uint64_t budget_bytes);

  bool may_open(MessageClass klass, uint64_t bytes) const;
  GrantId open(MessageClass klass, uint64_t bytes);  // requires may_open

  static uint32_t slot_of(GrantId grant) { return grant >> 12; }
  bool is_open(GrantId grant) const;
  // The slot of the grant that was open until now; nothing if the value is stale or unknown.
  std::optional<uint32_t> close(GrantId grant);

  uint32_t size() const { return slots_.size(); }
  uint32_t open_count() const { return slots_.open_count(); }
  uint64_t open_bytes() const { return bytes_[0] + bytes_[1]; }
  uint64_t given() const { return given_; }
  uint64_t closed() const { return closed_; }
  GrantId grant_of(uint32_t slot) const { return slot << 12 | grants_[slot].generation; }
  bool slot_is_open(uint32_t slot) const { return slots_.is_open(slot); }

 private:
  struct Grant {
    uint64_t bytes = 0;
    MessageClass klass = MessageClass::kRequest;
    uint16_t generation = 0;
  };
  SlotTable slots_;
  std::vector<Grant> grants_;
  const uint64_t budget_;
  uint64_t bytes_[kMessageClasses] = {};  // open, by class
  uint64_t given_ = 0;
  uint64_t closed_ = 0;
};

}  // namespace be
