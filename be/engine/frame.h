// What travels between two engines: every frame, byte by byte.
//
// A SEND begins with a header of 16 bytes, little endian; so do the bytes at a grant.
//
//   byte   0      type: a FrameKind (1..5, data), or one of the control frames below
//          1      bit 0: MessageClass; bits 1..7: zero
//          2      GrantCancels taken by the sender of this frame, modulo 256 (in SENDs only)
//          3      WriteResponse: Code of the refusal, 0: granted; else zero
//          4..7   socket           data, WriteRequest
//          8..11  length           data: bytes after the header; WriteRequest: bytes of the message
//          12..15 value            see the table
//
//   frame           type  receive spent  value                  after the header
//   data            1-5   a credit       zero                   `length` bytes: the message
//   Credits         16    reserve        total ever granted     -
//   WriteRequest    17    reserve        tag: names the answer  -
//   WriteResponse   18    reserve        tag                    grant (4) rkey (4) address (8)
//   GrantCancel     19    reserve        grant                  -
//   GrantDone       20    the grant's    grant                  -
//   CreditsBack     21    a credit       credits given back     -
//
// The immediate of a WRITE_WITH_IMM is the grant (grant_table.h). Fields that a frame does not
// use are zero. Bytes from a peer are read from memory that it can no longer write (a completed
// receive or a closed grant) and judged before use: decode names the first broken field.
//
// Pure.
#pragma once

#include <cstddef>
#include <cstdint>

#include "be/base/status.h"
#include "be/engine/frame_kind.h"

namespace be {

enum class FrameType : uint8_t {
  kMessage = 1,  // 1 .. 5: FrameKind
  kSocketClose = 5,
  kCredits = 16,
  kWriteRequest = 17,
  kWriteResponse = 18,
  kGrantCancel = 19,
  kGrantDone = 20,
  kCreditsBack = 21,
};
constexpr bool is_data(FrameType type) { return type <= FrameType::kSocketClose; }
constexpr bool spends_credit(FrameType type) {
  return is_data(type) || type == FrameType::kCreditsBack;
}

struct FrameHeader {
  static constexpr uint32_t kBytes = 16;
  FrameType type = FrameType::kMessage;
  MessageClass klass = MessageClass::kRequest;
  uint8_t cancels_taken = 0;
  Code refusal = Code::kOk;
  SocketId socket = 0;
  uint32_t length = 0;
  uint32_t value = 0;
};

// Writes kBytes at `out`.
void encode(const FrameHeader& header, uint8_t* out);

// Reads a header from the `length` bytes at `in` and checks each field by itself, and the length
// for the type. Null: well formed; else the name of the broken field.
const char* decode(const uint8_t* in, size_t length, FrameHeader& header);

// The second half of a WriteResponse; all zero in a refusal.
struct GrantedMemory {
  static constexpr uint32_t kBytes = 16;
  uint32_t grant = 0;
  uint32_t rkey = 0;
  uint64_t address = 0;
};
void encode(const GrantedMemory& memory, uint8_t* out);
GrantedMemory decode_granted_memory(const uint8_t* in);  // kBytes; the length was checked

}  // namespace be
