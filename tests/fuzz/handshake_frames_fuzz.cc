// The parsers of the handshake: what they take is written back as the same bytes, and bounded.
#include <cstring>

#include "be/transport/engine_offer.h"
#include "be/transport/handshake_frames.h"
#include "tests/common/must_hold.h"
#include "tests/fuzz/common/input.h"

namespace {

using namespace be;

bool equal(const std::vector<uint8_t>& a, std::span<const uint8_t> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

void try_header(std::span<const uint8_t> bytes) {
  if (bytes.size() < kHandshakeHeaderBytes) return;
  const Result<HandshakeHeader> header = HandshakeHeader::decode(bytes.data());
  if (!header.ok()) return;
  MUST_HOLD(header->body_bytes <= kMaxHandshakeBody);
  uint8_t written[kHandshakeHeaderBytes];
  header->encode(written);
  MUST_HOLD(std::memcmp(written, bytes.data(), sizeof(written)) == 0);
}

void try_hello(std::span<const uint8_t> body) {
  const Result<Hello> hello = decode_hello(body);
  if (hello.ok()) MUST_HOLD(equal(encode(*hello), body));
}

void try_refusal(std::span<const uint8_t> body) {
  const Status status = decode_refusal(body);
  MUST_HOLD(!status.ok());
  MUST_HOLD(status.message().size() <= kMaxRefusalText);
  for (const char c : status.message()) MUST_HOLD(c < 0 || c >= ' ');
  MUST_HOLD(decode_refusal(encode_refusal(status)).code() == status.code());
}

void try_offer(std::span<const uint8_t> body) {
  const Result<EngineOffer> offer = decode_engine_offer(body);
  if (!offer.ok()) return;
  MUST_HOLD(offer->terms.check().ok());
  MUST_HOLD(offer->endpoint.size() <= kMaxEndpointBytes);
  MUST_HOLD(equal(encode(*offer), body));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const uint8_t> bytes(data, size);
  try_header(bytes);
  try_hello(bytes);
  try_refusal(bytes);
  try_offer(bytes);
  return 0;
}
