#include "be/engine/frame.h"

#include <bit>
#include <cstring>

namespace be {
namespace {

static_assert(std::endian::native == std::endian::little, "frames are copied as they are");

struct WireHeader {
  uint8_t type;
  uint8_t flags;
  uint8_t cancels_taken;
  uint8_t refusal;
  uint32_t socket;
  uint32_t length;
  uint32_t value;
};
static_assert(sizeof(WireHeader) == FrameHeader::kBytes);

struct WireMemory {
  uint32_t grant;
  uint32_t rkey;
  uint64_t address;
};
static_assert(sizeof(WireMemory) == GrantedMemory::kBytes);

// Whether the fields that depend on the type, and the bytes after the header, fit it.
const char* check_by_type(const WireHeader& wire, size_t rest) {
  const bool names_socket = wire.type == static_cast<uint8_t>(FrameType::kWriteRequest);
  if (wire.socket != 0 && !names_socket) return "socket";
  if (wire.type == static_cast<uint8_t>(FrameType::kWriteResponse)) {
    if (wire.refusal > static_cast<uint8_t>(Code::kInternal)) return "refusal";
    if (rest != GrantedMemory::kBytes) return "frame length";
  } else {
    if (wire.refusal != 0) return "refusal";
    if (rest != 0) return "frame length";
  }
  if ((wire.length != 0) != names_socket) return "length";
  return nullptr;
}

}  // namespace

void encode(const FrameHeader& header, uint8_t* out) {
  const WireHeader wire = {static_cast<uint8_t>(header.type),
                           static_cast<uint8_t>(header.klass),
                           header.cancels_taken,
                           static_cast<uint8_t>(header.refusal),
                           header.socket,
                           header.length,
                           header.value};
  std::memcpy(out, &wire, sizeof(wire));
}

const char* decode(const uint8_t* in, size_t length, FrameHeader& header) {
  if (length < sizeof(WireHeader)) return "frame length";
  WireHeader wire;
  std::memcpy(&wire, in, sizeof(wire));
  const size_t rest = length - sizeof(wire);
  if (wire.flags > 1) return "flags";
  if (wire.type >= 1 && wire.type <= 5) {
    if (wire.length != rest) return "length";
    if (wire.value != 0) return "value";
    if (wire.refusal != 0) return "refusal";
  } else if (wire.type >= 16 && wire.type <= 21) {
    if (const char* broken = check_by_type(wire, rest)) return broken;
  } else {
    return "frame type";
  }
  header.type = static_cast<FrameType>(wire.type);
  header.klass = static_cast<MessageClass>(wire.flags & 1);
  header.cancels_taken = wire.cancels_taken;
  header.refusal = static_cast<Code>(wire.refusal);
  header.socket = wire.socket;
  header.length = wire.length;
  header.value = wire.value;
  return nullptr;
}

void encode(const GrantedMemory& memory, uint8_t* out) {
  const WireMemory wire = {memory.grant, memory.rkey, memory.address};
  std::memcpy(out, &wire, sizeof(wire));
}

GrantedMemory decode_granted_memory(const uint8_t* in) {
  WireMemory wire;
  std::memcpy(&wire, in, sizeof(wire));
  return {wire.grant, wire.rkey, wire.address};
}

}  // namespace be
