// What the two ends of a new connection tell each other, and its bounds.
//
//   frame:  mark (2) | type (1) | flags (1) | body length (4) | body | proof (32, if flagged)
//
//   client                          server
//   ClientHello           ->
//                         <-        ServerHello   from here on every frame carries a proof, if
//   one of                                        a secret is configured
//     OpenSocket          ->                      this connection becomes one TCP socket
//                         <-        AcceptSocket
//     Offer               ->                      of an engine over one kind of device
//                         <-        Answer | Decline
//     Ready | Decline     ->                      after Answer: how connecting the QP ended here
//                         <-        Ready | Decline
//   After a Decline the client asks for something else. Refuse, at any time, is the last frame.
//
// The two ends take strict turns, so both have the same transcript. Pure encoding; decode_* is
// where input from outside is bounded.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "be/base/status.h"
#include "be/verbs/device.h"

namespace be {

inline constexpr uint16_t kHandshakeMark = 0x4542;
inline constexpr uint16_t kHandshakeVersion = 2;
inline constexpr size_t kHandshakeHeaderBytes = 8;
inline constexpr size_t kMaxHandshakeBody = 2048;
inline constexpr size_t kHandshakeProofBytes = 32;
inline constexpr size_t kMaxRefusalText = 512;

enum class HandshakeType : uint8_t {
  kClientHello = 1,
  kServerHello = 2,
  kRefuse = 3,
  kOpenSocket = 4,
  kAcceptSocket = 5,
  kOffer = 6,
  kAnswer = 7,
  kDecline = 8,
  kReady = 9,
};

struct HandshakeHeader {
  HandshakeType type{};
  bool has_proof = false;
  uint32_t body_bytes = 0;

  void encode(uint8_t out[kHandshakeHeaderBytes]) const;
  static Result<HandshakeHeader> decode(const uint8_t in[kHandshakeHeaderBytes]);
};

// Both hellos.
struct Hello {
  uint16_t version = kHandshakeVersion;
  bool has_secret = false;
  uint8_t device_kinds = 0;  // bit DeviceKind: an engine over it could be had here
  uint32_t max_message_bytes = 0;
  std::array<uint8_t, 16> nonce{};

  bool offers(DeviceKind kind) const { return device_kinds >> static_cast<int>(kind) & 1; }
};
std::vector<uint8_t> encode(const Hello& hello);
Result<Hello> decode_hello(std::span<const uint8_t> body);

// Refuse and Decline.
std::vector<uint8_t> encode_refusal(const Status& why);
Status decode_refusal(std::span<const uint8_t> body);  // never ok: kProtocol if malformed

}  // namespace be
