// The sockets that have messages queued, by their id.
//
// A socket is in here while it has something to send: an idle one costs nothing and need not be
// told of. Found by open addressing in a flat array (linear probing; at most half full); entries
// are named by a small stable number, the slot, which the Scheduler uses too.
//
// Owned by one Engine, used on its I/O thread only. Allocates when more sockets than ever have
// messages at a time. A reference is valid until the next find_or_add.
#pragma once

#include <cstdint>
#include <vector>

#include "be/engine/frame_kind.h"
#include "be/engine/outgoing.h"

namespace be {

struct SocketQueue {
  SocketId id = 0;
  uint32_t length = 0;  // messages in the queue
  bool used = false;
  MessageList messages;
  // The first large message without a WriteRequest, or null.
  OutgoingMessage* unrequested = nullptr;
};

class SocketTable {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  SocketTable();

  uint32_t size() const { return size_; }
  uint32_t slots() const { return static_cast<uint32_t>(queues_.size()); }
  uint32_t find(SocketId id) const;  // kNone if there is none
  uint32_t find_or_add(SocketId id);
  SocketQueue& at(uint32_t slot) { return queues_[slot]; }
  const SocketQueue& at(uint32_t slot) const { return queues_[slot]; }
  void erase(uint32_t slot);  // requires that its queue is empty

 private:
  uint32_t home_of(SocketId id) const { return (id * 2654435769u) >> shift_; }
  uint32_t next(uint32_t place) const { return (place + 1) & mask_; }
  uint32_t place_of(SocketId id) const;  // where it is, or the hole where it would go
  void grow();

  std::vector<uint32_t> places_;  // slot, or kNone
  uint32_t mask_;
  uint32_t shift_;
  std::vector<SocketQueue> queues_;
  std::vector<uint32_t> free_;
  uint32_t size_ = 0;
};

}  // namespace be
