#include "be/rpc/protobuf_body.h"

#include <climits>

namespace be::rpc {

Result<Buffer> serialize_body(const google::protobuf::Message& message, RegisteredPool& pool) {
  if (!message.IsInitialized()) {
    return error(Code::kInvalidArgument, "{} lacks required fields: {}", message.GetTypeName(),
                 message.InitializationErrorString());
  }
  const size_t size = message.ByteSizeLong();  // remembered by the message for what follows
  if (size > INT_MAX) {
    return error(Code::kInvalidArgument, "{} of {} bytes is too large for protobuf",
                 message.GetTypeName(), size);
  }
  if (size == 0) return Buffer();
  Result<Buffer> body = pool.allocate_buffer(size);
  if (body.ok()) message.SerializeWithCachedSizesToArray(body->data());
  return body;
}

Status parse_body(const Buffer& body, google::protobuf::Message& message, Code code) {
  if (body.size() <= INT_MAX &&
      message.ParseFromArray(body.data(), static_cast<int>(body.size()))) {
    return {};
  }
  return error(code, "{} bytes do not parse as {}", body.size(), message.GetTypeName());
}

}  // namespace be::rpc
