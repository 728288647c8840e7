// Protobuf messages to and from the body of a call, without an intermediate copy.
#pragma once

#include <google/protobuf/message.h>

#include "be/base/status.h"
#include "be/memory/registered_pool.h"

namespace be::rpc {

// Straight into registered memory. kInvalidArgument names a missing required field or an
// impossible size; kResourceExhausted is the pool's.
Result<Buffer> serialize_body(const google::protobuf::Message& message, RegisteredPool& pool);

// `code` if the bytes are not such a message; the text names its type.
Status parse_body(const Buffer& body, google::protobuf::Message& message, Code code);

}  // namespace be::rpc
