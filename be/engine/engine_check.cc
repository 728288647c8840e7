#ifndef NDEBUG

#include <cassert>

#include "be/engine/engine_impl.h"

namespace be {

// The invariants of blueprint 6 that span machines; each machine asserts its own.
void Engine::Impl::check_invariants() const {
  assert(chain_.in_flight() + chain_.pending() + chain_.free() == chain_.depth());
  assert(ring_.posted() + ring_.to_repost() + ring_.deficit() == ring_.depth() ||
         state_ >= State::kFailing);
  assert(ring_.posted() + spares_.size() <= ring_.depth() || state_ >= State::kFailing);
  assert(spares_.size() >= ring_.to_repost());
  assert(grants_.given() == grants_.closed() + grants_.open_count());

  uint64_t window = 0;
  uint32_t fragments = 0;
  uint32_t messages = 0;  // in the chain
  for (uint32_t i = 0; i < chain_.in_flight() + chain_.pending(); ++i) {
    const SendSlot& slot = send_slots_[chain_.slot_of(chain_.oldest() + i)];
    window += slot.window_bytes;
    if (slot.kind == SendSlot::Kind::kFragment) ++fragments;
    if (slot.message != nullptr) ++messages;
  }
  assert(window == window_.in_flight());
  assert(options_.send_window_bytes == 0 || window <= options_.send_window_bytes);
  assert(fragments == fragments_in_flight_);

  uint32_t queued = 0;
  for (uint32_t slot = 0; slot < sockets_.slots(); ++slot) {
    const SocketQueue& queue = sockets_.at(slot);
    uint32_t length = 0;
    for (const OutgoingMessage* m = queue.messages.front(); m != nullptr; m = m->next) ++length;
    assert(length == queue.length);
    assert(queue.used == (length > 0));
    queued += length;
  }
  assert(queued == queued_);
  if (state_ < State::kFailing) {
    assert(retained_.empty());
    assert(queued + messages <= messages_.alive());
  }
}

}  // namespace be

#endif
