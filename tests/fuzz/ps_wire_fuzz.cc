// Frames of Fetch and Push: what is taken is within the limits and the bytes that came.
#include <cstring>

#include "be/ps/wire.h"
#include "tests/common/must_hold.h"
#include "tests/fuzz/common/input.h"

namespace {

using namespace be;
using namespace be::ps;

void try_fetch_request(std::span<const uint8_t> frame, const Limits& limits) {
  const auto request = parse_fetch_request(frame, limits);
  if (!request.ok()) return;
  MUST_HOLD(request->keys.size() >= 1 && request->keys.size() <= limits.max_keys);
  MUST_HOLD(frame.size() <= limits.max_bytes);
  const FetchLayout layout = fetch_request_layout(request->keys.size());
  MUST_HOLD(layout.bytes == frame.size());
  std::vector<uint8_t> written(layout.bytes);
  begin_fetch_request(written, request->table, request->view_version,
                      static_cast<uint32_t>(request->keys.size()));
  for (size_t i = 0; i < request->keys.size(); ++i) {
    const Key key = request->keys[i];
    std::memcpy(written.data() + layout.keys + i * sizeof(key), &key, sizeof(key));
  }
  MUST_HOLD(std::memcmp(written.data(), frame.data(), frame.size()) == 0);
}

void try_push_request(std::span<const uint8_t> frame, const Limits& limits) {
  const auto request = parse_push_request(frame, limits);
  if (!request.ok()) return;
  MUST_HOLD(request->keys.size() >= 1 && request->keys.size() <= limits.max_keys);
  MUST_HOLD(request->dim >= 1 && request->dim <= TableSpec::kMaxDim);
  MUST_HOLD(request->gradients.size() == request->keys.size() * request->dim);
  MUST_HOLD(push_request_layout(request->keys.size(), request->dim).bytes == frame.size());
  std::vector<float> row(request->dim);
  for (size_t i = 0; i < request->keys.size(); ++i) request->gradients.copy(i * row.size(), row);
}

void try_fetch_response(std::span<const uint8_t> frame, uint32_t keys, uint32_t dim) {
  const auto response = parse_fetch_response(frame, keys, dim);
  if (!response.ok()) return;
  std::vector<float> row(dim);
  for (uint32_t i = 0; i < keys; ++i) {
    response->values.copy(size_t{i} * dim, row);
    static_cast<void>(response->is_missing(i));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  const uint8_t what = input.u8();
  const uint32_t keys = 1 + input.u8();  // what was asked for
  const uint32_t dim = 1 + input.u8();
  const Limits limits{.max_keys = 64, .max_bytes = 2048};
  // At an address of its own, so that reading beyond is seen.
  const std::vector<uint8_t> frame = input.copy(input.left());
  switch (what % 4) {
    case 0:
      try_fetch_request(frame, limits);
      break;
    case 1:
      try_push_request(frame, limits);
      break;
    case 2:
      try_fetch_response(frame, keys, dim);
      break;
    case 3:
      if (const auto response = parse_push_response(frame, keys); response.ok()) {
        MUST_HOLD(response->keys == keys && response->created <= keys);
      }
      break;
  }
  return 0;
}
