#include "be/base/hmac.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <climits>

namespace be {

Result<Sha256Digest> hmac_sha256(std::span<const uint8_t> key, std::span<const uint8_t> message) {
  if (key.size() > INT_MAX) {
    return error(Code::kInvalidArgument, "an HMAC key of {} bytes is too long", key.size());
  }
  const uint8_t none = 0;  // OpenSSL refuses null pointers, of nothing too
  Sha256Digest digest{};
  unsigned size = 0;
  if (HMAC(EVP_sha256(), key.empty() ? &none : key.data(), static_cast<int>(key.size()),
           message.empty() ? &none : message.data(), message.size(), digest.data(),
           &size) == nullptr ||
      size != digest.size()) {
    return error(Code::kInternal, "OpenSSL cannot compute HMAC-SHA256");
  }
  return digest;
}

bool constant_time_equal(std::span<const uint8_t> a, std::span<const uint8_t> b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace be
