// What calls are made of: method names, options, request and response parts.
//
//   request on the wire:   rpc header | body | attachment        (one Message of the transport)
//   response on the wire:  rpc header | body | attachment
//
// The body is a serialised protobuf message or whatever a raw handler understands; the
// attachment is bulk data outside protobuf. Both arrive as views into one received Buffer.
#pragma once

#include <cstdint>
#include <string_view>

#include "be/base/status.h"
#include "be/base/task.h"
#include "be/base/time.h"
#include "be/memory/buffer.h"

namespace be::rpc {

// xxHash-32 (seed 0) of the full name ("be.ps.ParameterService.CreateTable"), the same on every
// machine. A server refuses to register two names with one hash.
using MethodId = uint32_t;
MethodId method_id(std::string_view full_name);

struct Payload {
  Buffer body{};
  Buffer attachment{};
};

struct CallOptions {
  Nanoseconds timeout{};  // 0: the channel's request timeout; ends at both ends
};

// Exactly one answer: the response, or why there is none.
using ResponseCallback = UniqueFunction<void(Result<Payload>)>;

}  // namespace be::rpc
