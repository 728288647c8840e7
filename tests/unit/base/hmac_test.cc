#include "be/base/hmac.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace be {
namespace {

std::vector<uint8_t> bytes_of(std::string_view text) { return {text.begin(), text.end()}; }

std::string hex_of(const Result<Sha256Digest>& digest) {
  if (!digest.ok()) return digest.status().to_string();
  std::string text;
  for (const uint8_t byte : *digest) text += fmt::format("{:02x}", byte);
  return text;
}

// RFC 4231, test cases 1, 2 and 6.
TEST(Hmac, GivesThePublishedDigests) {
  EXPECT_EQ(hex_of(hmac_sha256(std::vector<uint8_t>(20, 0x0b), bytes_of("Hi There"))),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hex_of(hmac_sha256(bytes_of("Jefe"), bytes_of("what do ya want for nothing?"))),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hex_of(hmac_sha256(std::vector<uint8_t>(131, 0xaa),
                               bytes_of("Test Using Larger Than Block-Size Key - Hash Key First"))),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(Hmac, EmptyKeyAndMessageAreAllowed) {
  EXPECT_EQ(hex_of(hmac_sha256({}, {})),
            "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
}

TEST(ConstantTimeEqual, ComparesLengthAndEveryByte) {
  const auto secret = bytes_of("secret");
  EXPECT_TRUE(constant_time_equal(secret, bytes_of("secret")));
  EXPECT_FALSE(constant_time_equal(secret, bytes_of("secreT")));
  EXPECT_FALSE(constant_time_equal(secret, bytes_of("Secret")));
  EXPECT_FALSE(constant_time_equal(secret, bytes_of("secret1")));
  EXPECT_TRUE(constant_time_equal({}, {}));
}

}  // namespace
}  // namespace be
