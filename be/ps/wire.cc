#include "be/ps/wire.h"

#include "be/base/byte_io.h"

namespace be::ps {
namespace {

constexpr size_t kFetchRequestHeader = 16;
constexpr size_t kFetchResponseHeader = 8;
constexpr size_t kPushRequestHeader = 24;

Status truncated(const char* what, size_t have, size_t want) {
  return error(Code::kProtocol, "{}: {} bytes came, {} were expected", what, have, want);
}

}  // namespace

FetchLayout fetch_request_layout(size_t keys) {
  return {kFetchRequestHeader, kFetchRequestHeader + keys * sizeof(Key)};
}

RowsLayout fetch_response_layout(size_t keys, uint32_t dim) {
  RowsLayout layout{};
  layout.values = kFetchResponseHeader;
  layout.missing = layout.values + keys * dim * sizeof(float);
  layout.bytes = layout.missing + (keys + 7) / 8;
  return layout;
}

RowsLayout push_request_layout(size_t keys, uint32_t dim) {
  RowsLayout layout{};
  layout.keys = kPushRequestHeader;
  layout.values = layout.keys + keys * sizeof(Key);
  layout.bytes = layout.values + keys * dim * sizeof(float);
  return layout;
}

void begin_fetch_request(std::span<uint8_t> frame, TableId table, uint32_t view_version,
                         uint32_t keys) {
  ByteWriter out(frame);
  out.write_u64(table);
  out.write_u32(view_version);
  out.write_u32(keys);
}

void begin_fetch_response(std::span<uint8_t> frame, uint32_t keys, uint32_t dim) {
  ByteWriter out(frame);
  out.write_u32(keys);
  out.write_u32(dim);
}

void begin_push_request(std::span<uint8_t> frame, TableId table, uint32_t view_version,
                        uint32_t keys, uint32_t dim) {
  ByteWriter out(frame);
  out.write_u64(table);
  out.write_u32(view_version);
  out.write_u32(keys);
  out.write_u32(dim);
  out.write_u32(0);
}

void write_push_response(std::span<uint8_t> frame, const PushResponse& response) {
  ByteWriter out(frame);
  out.write_u32(response.keys);
  out.write_u32(response.created);
}

Status check_request(const char* what, uint64_t keys, uint64_t bytes, const Limits& limits) {
  if (keys == 0) return error(Code::kInvalidArgument, "{}: key count 0", what);
  if (keys > limits.max_keys) {
    return error(Code::kInvalidArgument,
                 "{}: {} keys, more than the {} of one request (ps.max_keys)", what, keys,
                 limits.max_keys);
  }
  if (bytes > limits.max_bytes) {
    return error(Code::kInvalidArgument,
                 "{}: {} bytes, more than the {} of one request (ps.max_bytes, memory.cap_bytes)",
                 what, bytes, limits.max_bytes);
  }
  return ok_status();
}

Result<FetchRequest> parse_fetch_request(std::span<const uint8_t> frame, const Limits& limits) {
  ByteReader in(frame);
  FetchRequest request;
  request.table = in.read_u64();
  request.view_version = in.read_u32();
  const uint32_t keys = in.read_u32();
  if (!in.ok()) return truncated("Fetch request", frame.size(), kFetchRequestHeader);
  BE_RETURN_IF_ERROR(check_request("Fetch", keys, frame.size(), limits));
  request.keys = Unaligned<Key>(in.read_bytes(keys * sizeof(Key)));
  if (!in.finished()) {
    return truncated("Fetch request", frame.size(), fetch_request_layout(keys).bytes);
  }
  return request;
}

Result<FetchResponse> parse_fetch_response(std::span<const uint8_t> frame, uint32_t keys,
                                           uint32_t dim) {
  const RowsLayout layout = fetch_response_layout(keys, dim);
  if (frame.size() != layout.bytes) return truncated("Fetch response", frame.size(), layout.bytes);
  ByteReader in(frame);
  const uint32_t got_keys = in.read_u32();
  const uint32_t got_dim = in.read_u32();
  if (got_keys != keys || got_dim != dim) {
    return error(Code::kProtocol, "Fetch response: {} keys of dim {}, asked for {} of dim {}",
                 got_keys, got_dim, keys, dim);
  }
  FetchResponse response;
  response.values = Unaligned<float>(in.read_bytes(layout.missing - layout.values));
  response.missing = in.rest();
  return response;
}

Result<PushRequest> parse_push_request(std::span<const uint8_t> frame, const Limits& limits) {
  ByteReader in(frame);
  PushRequest request;
  request.table = in.read_u64();
  request.view_version = in.read_u32();
  const uint32_t keys = in.read_u32();
  request.dim = in.read_u32();
  in.skip(4);
  if (!in.ok()) return truncated("Push request", frame.size(), kPushRequestHeader);
  BE_RETURN_IF_ERROR(check_request("Push", keys, frame.size(), limits));
  if (request.dim == 0 || request.dim > TableSpec::kMaxDim) {
    return error(Code::kInvalidArgument, "Push: dim {} is not in 1 .. {}", request.dim,
                 TableSpec::kMaxDim);
  }
  request.keys = Unaligned<Key>(in.read_bytes(keys * sizeof(Key)));
  request.gradients = Unaligned<float>(in.read_bytes(size_t{keys} * request.dim * sizeof(float)));
  if (!in.finished()) {
    return truncated("Push request", frame.size(), push_request_layout(keys, request.dim).bytes);
  }
  return request;
}

Result<PushResponse> parse_push_response(std::span<const uint8_t> frame, uint32_t keys) {
  ByteReader in(frame);
  PushResponse response;
  response.keys = in.read_u32();
  response.created = in.read_u32();
  if (!in.finished()) return truncated("Push response", frame.size(), kPushResponseBytes);
  if (response.keys != keys || response.created > keys) {
    return error(Code::kProtocol, "Push response: {} keys, {} created, of {} pushed", response.keys,
                 response.created, keys);
  }
  return response;
}

}  // namespace be::ps
