// The rpc frame: 32 bytes of header, then body and attachment, little endian.
//
//   byte  0  type          1 request, 2 response, 3 cancel
//         1  flags         0 (none is defined)
//         2  code          response: Code of the outcome, 0 = success; else 0
//         3  reserved      0
//      4- 7  method        request: method_id of the full name; else 0
//      8-15  call_id       chosen by the client: generation << 32 | slot; unique per connection
//     16-19  timeout_us    request: time left to its deadline when it was sent; else 0
//     20-23  body_bytes    of a failed response: the text of its Status, at most kMaxErrorBytes
//     24-27  attachment_bytes
//     28-31  reserved      0
//
//   32 + body_bytes + attachment_bytes == size of the message
//
// The header travels in Message::header, so it costs no allocation; body and attachment arrive
// as views into the one received Buffer. Everything a peer wrote is checked before it is used.
//
// Pure functions, any thread. A frame that breaks a rule is kProtocol, naming the rule.
#pragma once

#include <bit>
#include <cstdint>
#include <utility>

#include "be/base/status.h"
#include "be/base/time.h"
#include "be/memory/buffer.h"
#include "be/memory/registered_pool.h"
#include "be/rpc/message.h"

namespace be::rpc {

enum class FrameType : uint8_t { kRequest = 1, kResponse = 2, kCancel = 3 };

struct FrameHeader {
  FrameType type{};
  uint8_t flags = 0;
  uint8_t code = 0;
  uint8_t reserved = 0;
  uint32_t method = 0;
  uint64_t call_id = 0;
  uint32_t timeout_us = 0;
  uint32_t body_bytes = 0;
  uint32_t attachment_bytes = 0;
  uint32_t reserved_too = 0;
};
static_assert(sizeof(FrameHeader) == 32 && sizeof(FrameHeader) <= Message::kMaxHeaderBytes);
static_assert(std::endian::native == std::endian::little, "the header is copied as it stands");

inline constexpr size_t kMaxErrorBytes = 1024;

// A zero or negative rest gives 0: the server answers without running the handler. What does not
// fit (more than 71 minutes) is cut down.
uint32_t timeout_on_wire(Nanoseconds left);

// header | body | attachment into an empty message. The sizes in `header` are filled in here.
inline void make_frame(Message& frame, FrameHeader& header, Payload& payload) {
  header.body_bytes = static_cast<uint32_t>(payload.body.size());
  header.attachment_bytes = static_cast<uint32_t>(payload.attachment.size());
  frame.set_header(&header, sizeof(header));
  if (header.body_bytes != 0) frame.parts[frame.count++] = std::move(payload.body);
  if (header.attachment_bytes != 0) frame.parts[frame.count++] = std::move(payload.attachment);
}

// Gives back what make_frame took, when the transport has refused the message.
void take_back(Message& frame, Payload& payload);

// A response that carries `status` (not ok). If its text cannot be allocated, `no_memory_text`,
// made beforehand, goes in its place (shared, so any number of responses may carry it at a time).
void make_error_frame(Message& frame, uint64_t call_id, const Status& status, RegisteredPool& pool,
                      Buffer& no_memory_text);

// For make_error_frame: says that there was no memory, and names the cap. Already shared, so that
// any thread may share it. Empty if there is none even now.
Buffer make_no_memory_text(RegisteredPool& pool);

// Copies the header out of a received message and checks it against the message's size.
Status parse_frame(const Buffer& frame, FrameHeader& header);

// The views behind a header that parse_frame accepted. One part alone keeps the Buffer itself.
Payload split_frame(const FrameHeader& header, Buffer&& frame);

// The Status inside a failed response. Control characters of the text are replaced.
Status error_of_response(const FrameHeader& header, const Buffer& body);

}  // namespace be::rpc
