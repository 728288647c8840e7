#include "be/transport/handshake_frames.h"

#include <algorithm>

#include "be/base/byte_io.h"

namespace be {
namespace {

constexpr uint64_t kMagic = 0x5353455250584542;  // "BEXPRESS"
constexpr uint8_t kProofFlag = 1;

}  // namespace

void HandshakeHeader::encode(uint8_t out[kHandshakeHeaderBytes]) const {
  ByteWriter writer({out, kHandshakeHeaderBytes});
  writer.write_u16(kHandshakeMark);
  writer.write_u8(static_cast<uint8_t>(type));
  writer.write_u8(has_proof ? kProofFlag : 0);
  writer.write_u32(body_bytes);
}

Result<HandshakeHeader> HandshakeHeader::decode(const uint8_t in[kHandshakeHeaderBytes]) {
  ByteReader reader({in, kHandshakeHeaderBytes});
  const uint16_t mark = reader.read_u16();
  const uint8_t type = reader.read_u8();
  const uint8_t flags = reader.read_u8();
  HandshakeHeader header;
  header.body_bytes = reader.read_u32();
  if (mark != kHandshakeMark) {
    return error(Code::kProtocol, "no ByteExpress handshake (it begins with {:#06x})", mark);
  }
  if (type < static_cast<uint8_t>(HandshakeType::kClientHello) ||
      type > static_cast<uint8_t>(HandshakeType::kReady) || (flags & ~kProofFlag) != 0) {
    return error(Code::kProtocol, "malformed handshake frame (type {}, flags {:#x})", type, flags);
  }
  if (header.body_bytes > kMaxHandshakeBody) {
    return error(Code::kProtocol, "oversized handshake frame of {} bytes", header.body_bytes);
  }
  header.type = static_cast<HandshakeType>(type);
  header.has_proof = flags != 0;
  return header;
}

std::vector<uint8_t> encode(const Hello& hello) {
  std::vector<uint8_t> body(32);
  ByteWriter writer(body);
  writer.write_u64(kMagic);
  writer.write_u16(hello.version);
  writer.write_u8(hello.has_secret ? 1 : 0);
  writer.write_u8(hello.device_kinds);
  writer.write_u32(hello.max_message_bytes);
  writer.write_bytes(hello.nonce);
  return body;
}

Result<Hello> decode_hello(std::span<const uint8_t> body) {
  ByteReader reader(body);
  Hello hello;
  const uint64_t magic = reader.read_u64();
  hello.version = reader.read_u16();
  const uint8_t has_secret = reader.read_u8();
  hello.has_secret = has_secret != 0;
  hello.device_kinds = reader.read_u8();
  hello.max_message_bytes = reader.read_u32();
  reader.read_into(hello.nonce);
  if (!reader.ok() || magic != kMagic) return Status(Code::kProtocol, "malformed hello");
  if (hello.version != kHandshakeVersion) {
    return error(Code::kUnsupported, "the peer speaks version {}, we speak {}", hello.version,
                 kHandshakeVersion);
  }
  if (!reader.finished() || has_secret > 1) return Status(Code::kProtocol, "malformed hello");
  return hello;
}

std::vector<uint8_t> encode_refusal(const Status& why) {
  const std::string_view text = std::string_view(why.message()).substr(0, kMaxRefusalText);
  std::vector<uint8_t> body(1 + 4 + text.size());
  ByteWriter writer(body);
  writer.write_u8(static_cast<uint8_t>(why.code()));
  writer.write_string(text);
  return body;
}

Status decode_refusal(std::span<const uint8_t> body) {
  ByteReader reader(body);
  const uint8_t code = reader.read_u8();
  std::string text(reader.read_string(kMaxRefusalText));
  if (!reader.finished() || code == 0 || code > static_cast<uint8_t>(Code::kInternal)) {
    return Status(Code::kProtocol, "malformed refusal");
  }
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c >= 0 && c < ' '; }, ' ');  // it is logged
  return Status(static_cast<Code>(code), text);
}

}  // namespace be
