// Frames of the raw methods be.ps.Fetch and be.ps.Push, little-endian:
//
//   Fetch request   table u64 | view u32 | n u32 | n keys u64
//   Fetch response  n u32 | dim u32 | n * dim values f32 | missing bitmap, ceil(n / 8) bytes
//   Push request    table u64 | view u32 | n u32 | dim u32 | 0 u32 | n keys u64
//                                                           | n * dim gradients f32
//   Push response   n u32 | rows created u32
//
// One request covers keys of any virtual shards of the server that it goes to, each at most
// once; keys of one virtual shard stand together (only for speed: runs share one lock). Bit i of
// the bitmap, lowest bit of a byte first, is set if key i has no row: its initial values are sent.
//
// Parsing trusts nothing: lengths are bounded by Limits and must agree with the bytes that came;
// a violation is kProtocol or kInvalidArgument with both numbers. The views returned point into
// the parsed bytes, which need no alignment. Pure, any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "be/base/status.h"
#include "be/ps/table_spec.h"

namespace be::ps {

inline constexpr const char* kFetchMethod = "be.ps.Fetch";
inline constexpr const char* kPushMethod = "be.ps.Push";

// Of one request to one server. Clients check before they send, servers before they use. What
// can never fit a node's memory cap is no request either: see limits_within.
struct Limits {
  uint32_t max_keys = 1u << 20;
  size_t max_bytes = size_t{64} << 20;  // of the request and of the response
  size_t cap_bytes = SIZE_MAX;  // of a Fetch's responses together: the client holds them all
};

inline Limits limits_within(Limits limits, size_t memory_cap_bytes) {
  limits.max_bytes = std::min(limits.max_bytes, memory_cap_bytes);
  limits.cap_bytes = std::min(limits.cap_bytes, memory_cap_bytes);
  return limits;
}

// Elements of type T lying unaligned in somebody else's bytes.
template <typename T>
class Unaligned {
 public:
  Unaligned() = default;
  explicit Unaligned(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  size_t size() const { return bytes_.size() / sizeof(T); }
  T operator[](size_t index) const {
    T value;
    std::memcpy(&value, bytes_.data() + index * sizeof(T), sizeof(T));
    return value;
  }
  void copy(size_t first, std::span<T> out) const {
    std::memcpy(out.data(), bytes_.data() + first * sizeof(T), out.size_bytes());
  }

 private:
  std::span<const uint8_t> bytes_;
};

struct FetchRequest {
  TableId table = 0;
  uint32_t view_version = 0;
  Unaligned<Key> keys;
};

struct FetchResponse {
  Unaligned<float> values;
  std::span<const uint8_t> missing;

  bool is_missing(size_t index) const { return (missing[index / 8] >> (index % 8)) & 1; }
};

struct PushRequest {
  TableId table = 0;
  uint32_t view_version = 0;
  uint32_t dim = 0;
  Unaligned<Key> keys;
  Unaligned<float> gradients;
};

struct PushResponse {
  uint32_t keys = 0;
  uint32_t created = 0;
};

// Where the parts of a frame lie, for who writes it in place.
struct FetchLayout {
  size_t keys;   // requests: offset of the keys
  size_t bytes;  // of the whole frame
};
struct RowsLayout {
  size_t keys = 0;     // Push request
  size_t values;       // rows or gradients: a multiple of 4
  size_t missing = 0;  // Fetch response
  size_t bytes;
};

FetchLayout fetch_request_layout(size_t keys);
RowsLayout fetch_response_layout(size_t keys, uint32_t dim);
RowsLayout push_request_layout(size_t keys, uint32_t dim);
inline constexpr size_t kPushResponseBytes = 8;

// These write the fixed fields at the front; frame.size() is the layout's `bytes`.
void begin_fetch_request(std::span<uint8_t> frame, TableId table, uint32_t view_version,
                         uint32_t keys);
void begin_fetch_response(std::span<uint8_t> frame, uint32_t keys, uint32_t dim);
void begin_push_request(std::span<uint8_t> frame, TableId table, uint32_t view_version,
                        uint32_t keys, uint32_t dim);
void write_push_response(std::span<uint8_t> frame, const PushResponse& response);

Result<FetchRequest> parse_fetch_request(std::span<const uint8_t> frame, const Limits& limits);
Result<FetchResponse> parse_fetch_response(std::span<const uint8_t> frame, uint32_t keys,
                                           uint32_t dim);
Result<PushRequest> parse_push_request(std::span<const uint8_t> frame, const Limits& limits);
Result<PushResponse> parse_push_response(std::span<const uint8_t> frame, uint32_t keys);

// The bounds that both ends check: "Fetch: key count 0".
Status check_request(const char* what, uint64_t keys, uint64_t bytes, const Limits& limits);

}  // namespace be::ps
