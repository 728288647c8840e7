#include <cassert>

#include "be/engine/engine_impl.h"

namespace be {

// The invariants of blueprint 6 that span machines; each machine asserts its own.
const char* Engine::Impl::broken_invariant() const {
  if (chain_.in_flight() + chain_.pending() + chain_.free() != chain_.depth()) {
    return "in flight + pending + free == send queue depth";
  }
  if (grants_.given() != grants_.closed() + grants_.open_count()) {
    return "grants given == closed + open";
  }

  uint64_t window = 0;
  uint32_t fragments = 0;
  uint32_t messages = 0;  // in the chain
  for (uint32_t i = 0; i < chain_.in_flight() + chain_.pending(); ++i) {
    const SendSlot& slot = send_slots_[chain_.slot_of(chain_.oldest() + i)];
    window += slot.window_bytes;
    if (slot.kind == SendSlot::Kind::kFragment) ++fragments;
    if (slot.message != nullptr) ++messages;
  }
  if (window != window_.in_flight()) return "window == payload bytes in the chain";
  if (options_.send_window_bytes != 0 && window > options_.send_window_bytes) {
    return "payload bytes in the chain <= engine.send_window_bytes";
  }
  if (fragments != fragments_in_flight_) return "fragments in flight == those in the chain";

  uint32_t queued = 0;
  for (uint32_t slot = 0; slot < sockets_.slots(); ++slot) {
    const SocketQueue& queue = sockets_.at(slot);
    uint32_t length = 0;
    for (const OutgoingMessage* m = queue.messages.front(); m != nullptr; m = m->next) ++length;
    if (length != queue.length) return "length of a socket's queue == its messages";
    if (queue.used != (length > 0)) return "a socket has a queue <=> it has messages";
    queued += length;
  }
  if (queued != queued_) return "queued == sum over the sockets";

  if (state_ >= State::kFailing) return nullptr;
  if (ring_.posted() + ring_.to_repost() + ring_.deficit() != ring_.depth()) {
    return "posted + to repost + deficit == receive queue depth";
  }
  if (shared_ != nullptr) {
    if (ring_.data_posted() != shared_->dealt(share_)) return "credits of the ring == those dealt";
  } else if (ring_.posted() + spares_.size() > ring_.depth() ||
             spares_.size() < ring_.to_repost()) {
    return "to repost <= spare buffers <= receive queue depth - posted";
  }
  if (!retained_.empty()) return "nothing is retained before the failure";
  if (queued + messages > messages_.alive()) return "queued + in the chain <= messages alive";
  return nullptr;
}

// Looks at every queue: in debug builds only. A simulation asks for itself.
void Engine::Impl::check_invariants() const { assert(broken_invariant() == nullptr); }

}  // namespace be
