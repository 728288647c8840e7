// HalfOpen: the handshakes under way on one I/O thread, oldest first, and their bound.
//
// Peers that connect and stay silent cost a place each until their time is over. When all
// places are taken the oldest handshake gives way: an honest one lasts milliseconds, so the
// oldest is a silent one. Used on its I/O thread only.
#pragma once

#include <cstddef>
#include <list>

namespace be {

class ServerHandshake;

class HalfOpen {
 public:
  static constexpr size_t kMax = 256;
  using Place = std::list<ServerHandshake*>::iterator;

  Place enter(ServerHandshake* handshake) { return waiting_.insert(waiting_.end(), handshake); }
  void leave(Place place) { waiting_.erase(place); }
  // Who has to give way; null while there is room.
  ServerHandshake* surplus() { return waiting_.size() > kMax ? waiting_.front() : nullptr; }

 private:
  std::list<ServerHandshake*> waiting_;
};

}  // namespace be
