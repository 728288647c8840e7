// HMAC-SHA256 (RFC 2104) over OpenSSL, and comparison that does not tell where it failed.
//
// Pure, any thread. Used by the handshake's proof that both ends know the shared secret.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "be/base/status.h"

namespace be {

using Sha256Digest = std::array<uint8_t, 32>;

// Fails (kInternal) only when OpenSSL does: no memory, or a policy that forbids the algorithm.
Result<Sha256Digest> hmac_sha256(std::span<const uint8_t> key, std::span<const uint8_t> message);

// Takes the same time wherever the bytes differ. The lengths are no secret.
bool constant_time_equal(std::span<const uint8_t> a, std::span<const uint8_t> b);

}  // namespace be
