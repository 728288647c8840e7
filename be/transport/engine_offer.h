// Offer and Answer of the handshake: one end of an engine, all that the other end must know.
//
// Pure. The token is made by the answering end; both ends present it to each other's device.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "be/engine/engine_options.h"
#include "be/verbs/device.h"

namespace be {

using ConnectToken = std::array<uint8_t, 16>;

struct EngineOffer {
  DeviceKind kind{};
  EngineTerms terms;
  EndpointBlob endpoint;
  ConnectToken token{};
};

std::vector<uint8_t> encode(const EngineOffer& offer);
// kProtocol if malformed or if a term is out of its bounds.
Result<EngineOffer> decode_engine_offer(std::span<const uint8_t> body);

}  // namespace be
