#include "be/rpc/frame.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

namespace be::rpc {
namespace {

Status malformed(std::string_view rule) { return error(Code::kProtocol, "rpc frame: {}", rule); }

Status check_by_type(const FrameHeader& header) {
  switch (header.type) {
    case FrameType::kRequest:
      if (header.code != 0) return malformed("a request with a status code");
      return {};
    case FrameType::kResponse:
      if (header.code > static_cast<uint8_t>(Code::kInternal)) {
        return error(Code::kProtocol, "rpc frame: unknown status code {}", header.code);
      }
      if (header.code == 0) return {};
      if (header.body_bytes > kMaxErrorBytes) {
        return error(Code::kProtocol, "rpc frame: error text of {} bytes, at most {} are allowed",
                     header.body_bytes, kMaxErrorBytes);
      }
      if (header.attachment_bytes != 0) return malformed("a failed response with an attachment");
      return {};
    case FrameType::kCancel:
      if (header.body_bytes != 0 || header.attachment_bytes != 0) {
        return malformed("a cancel with content");
      }
      return {};
  }
  return error(Code::kProtocol, "rpc frame: unknown type {}", static_cast<int>(header.type));
}

}  // namespace

uint32_t timeout_on_wire(Nanoseconds left) {
  const int64_t us = std::chrono::duration_cast<std::chrono::microseconds>(left).count();
  return static_cast<uint32_t>(std::clamp<int64_t>(us, 0, UINT32_MAX));
}

void take_back(Message& frame, Payload& payload) {
  FrameHeader header;
  std::memcpy(&header, frame.header, sizeof(header));
  int part = 0;  // an empty one is not there
  if (header.body_bytes != 0) payload.body = std::move(frame.parts[part++]);
  if (header.attachment_bytes != 0) payload.attachment = std::move(frame.parts[part]);
}

Buffer make_no_memory_text(RegisteredPool& pool) {
  const std::string text = fmt::format(
      "the server had no memory for the text of this error: memory.cap_bytes = {} is reached",
      pool.stats().cap_bytes);
  Result<Buffer> buffer = pool.allocate_buffer(text.size());
  if (!buffer.ok()) return {};
  std::memcpy(buffer->data(), text.data(), text.size());
  return buffer->share(0, text.size());
}

void make_error_frame(Message& frame, uint64_t call_id, const Status& status, RegisteredPool& pool,
                      Buffer& no_memory_text) {
  FrameHeader header;
  header.type = FrameType::kResponse;
  header.code = static_cast<uint8_t>(status.code());
  header.call_id = call_id;
  Payload payload;
  const size_t length = std::min(status.message().size(), kMaxErrorBytes);
  if (length != 0) {
    if (Result<Buffer> text = pool.allocate_buffer(length); text.ok()) {
      payload.body = std::move(text).value();
      std::memcpy(payload.body.data(), status.message().data(), length);
    } else {
      payload.body = no_memory_text.share(0, no_memory_text.size());
    }
  }
  make_frame(frame, header, payload);
}

Status parse_frame(const Buffer& frame, FrameHeader& header) {
  if (frame.size() < sizeof(FrameHeader)) {
    return error(Code::kProtocol, "rpc frame: {} bytes are less than its header", frame.size());
  }
  std::memcpy(&header, frame.data(), sizeof(header));
  if (header.flags != 0 || header.reserved != 0 || header.reserved_too != 0) {
    return malformed("reserved bits are set");
  }
  const uint64_t expected =
      sizeof(FrameHeader) + uint64_t{header.body_bytes} + header.attachment_bytes;
  if (expected != frame.size()) {
    return error(Code::kProtocol,
                 "rpc frame: body of {} and attachment of {} bytes in a message of {} bytes",
                 header.body_bytes, header.attachment_bytes, frame.size());
  }
  return check_by_type(header);
}

Payload split_frame(const FrameHeader& header, Buffer&& frame) {
  Payload payload;
  if (header.body_bytes != 0 && header.attachment_bytes != 0) {
    payload.body = frame.share(sizeof(FrameHeader), header.body_bytes);
    payload.attachment =
        frame.share(sizeof(FrameHeader) + header.body_bytes, header.attachment_bytes);
    frame.reset();
    return payload;
  }
  frame.drop_front(sizeof(FrameHeader));
  if (header.body_bytes != 0) {
    payload.body = std::move(frame);
  } else if (header.attachment_bytes != 0) {
    payload.attachment = std::move(frame);
  } else {
    frame.reset();
  }
  return payload;
}

Status error_of_response(const FrameHeader& header, const Buffer& body) {
  std::string text(reinterpret_cast<const char*>(body.data()), body.size());
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return Status(static_cast<Code>(header.code), std::move(text));
}

}  // namespace be::rpc
