#include "be/transport/engine_offer.h"

#include <string_view>

#include "be/base/byte_io.h"
#include "be/transport/handshake_frames.h"

namespace be {

std::vector<uint8_t> encode(const EngineOffer& offer) {
  std::vector<uint8_t> body(kMaxHandshakeBody);
  ByteWriter writer(body);
  writer.write_u8(static_cast<uint8_t>(offer.kind));
  writer.write_u32(offer.terms.recv_queue_depth);
  writer.write_u32(offer.terms.initial_credits);
  writer.write_u8(offer.terms.shared_receives ? 1 : 0);
  writer.write_u32(offer.terms.grants);
  writer.write_u32(offer.terms.write_requests);
  writer.write_u32(offer.terms.grant_cancels);
  writer.write_u32(offer.terms.eager_bytes);
  writer.write_u32(offer.terms.max_message_bytes);
  writer.write_u64(offer.terms.keepalive_address);
  writer.write_u32(offer.terms.keepalive_rkey);
  writer.write_i64(offer.terms.keepalive_interval.count());
  writer.write_bytes(offer.token);
  writer.write_u32(static_cast<uint32_t>(offer.endpoint.size()));
  writer.write_bytes(offer.endpoint);
  body.resize(writer.size());
  return body;
}

Result<EngineOffer> decode_engine_offer(std::span<const uint8_t> body) {
  ByteReader reader(body);
  EngineOffer offer;
  const uint8_t kind = reader.read_u8();
  offer.terms.recv_queue_depth = reader.read_u32();
  offer.terms.initial_credits = reader.read_u32();
  const uint8_t shared_receives = reader.read_u8();
  offer.terms.grants = reader.read_u32();
  offer.terms.write_requests = reader.read_u32();
  offer.terms.grant_cancels = reader.read_u32();
  offer.terms.eager_bytes = reader.read_u32();
  offer.terms.max_message_bytes = reader.read_u32();
  offer.terms.keepalive_address = reader.read_u64();
  offer.terms.keepalive_rkey = reader.read_u32();
  offer.terms.keepalive_interval = Nanoseconds(reader.read_i64());
  reader.read_into(offer.token);
  const std::string_view endpoint = reader.read_string(kMaxEndpointBytes);
  if (!reader.finished() || shared_receives > 1 ||
      kind < static_cast<uint8_t>(DeviceKind::kHardware) ||
      kind > static_cast<uint8_t>(DeviceKind::kSimulated)) {
    return Status(Code::kProtocol, "malformed engine offer");
  }
  offer.terms.shared_receives = shared_receives != 0;
  BE_RETURN_IF_ERROR(offer.terms.check());
  offer.kind = static_cast<DeviceKind>(kind);
  offer.endpoint.assign(endpoint.begin(), endpoint.end());
  return offer;
}

}  // namespace be
