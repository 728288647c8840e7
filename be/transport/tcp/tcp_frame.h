// The eight bytes in front of every message on a TCP connection.
//
//   length (4, little-endian) | kind (1) | zero (3)
//
// Pure. decode() is where a frame from outside is bounded.
#pragma once

#include <cstdint>
#include <cstring>

#include "be/base/status.h"
#include "be/engine/engine.h"

namespace be {

struct TcpFrame {
  static constexpr size_t kBytes = 8;

  uint32_t length = 0;
  FrameKind kind = FrameKind::kMessage;

  void encode(uint8_t out[kBytes]) const {
    const uint64_t word = length | static_cast<uint64_t>(kind) << 32;
    std::memcpy(out, &word, kBytes);
  }

  // Only messages and an empty close are frames of a TCP socket.
  static Status decode(const uint8_t in[kBytes], uint32_t max_length, TcpFrame* frame) {
    uint64_t word;
    std::memcpy(&word, in, kBytes);
    frame->length = static_cast<uint32_t>(word);
    frame->kind = static_cast<FrameKind>(word >> 32 & 0xff);
    if (word >> 40 != 0 ||
        (frame->kind != FrameKind::kMessage && frame->kind != FrameKind::kSocketClose)) {
      return error(Code::kProtocol, "malformed frame header {:016x}", word);
    }
    if (frame->kind == FrameKind::kSocketClose && frame->length != 0) {
      return error(Code::kProtocol, "close frame with {} bytes of payload", frame->length);
    }
    if (frame->length > max_length) {
      return error(Code::kProtocol, "oversized frame of {} bytes, at most {} are taken",
                   frame->length, max_length);
    }
    return {};
  }
};

}  // namespace be
