// The words that engine, frames and the small machines share.
//
// Plain values; those with numbers travel on the wire: never renumber.
#pragma once

#include <cstdint>

namespace be {

using SocketId = uint32_t;  // connector's ids are odd, the listener's even (blueprint 7)

// What a SEND or grant carries for the layer above.
enum class FrameKind : uint8_t {
  kMessage = 1,
  kSocketOpen = 2,  // payload: the layer above decides
  kSocketAccept = 3,
  kSocketRefuse = 4,
  kSocketClose = 5,
};

// Requests can never starve replies of credits, WriteRequests or grants (blueprint 6, Memory).
enum class MessageClass : uint8_t { kRequest = 0, kReply = 1 };
inline constexpr int kMessageClasses = 2;

// Of `total` things that both classes draw from, the last ones only replies may take: a quarter,
// and at least one. A request may take one only while more than these are left.
constexpr uint32_t reply_share(uint32_t total) { return total < 4 ? 1 : (total + 3) / 4; }
constexpr bool may_take(MessageClass klass, uint32_t left, uint32_t total) {
  return left > (klass == MessageClass::kReply ? 0 : reply_share(total));
}

}  // namespace be
