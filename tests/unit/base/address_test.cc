#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "be/base/stream_network.h"

namespace be {
namespace {

using testing::HasSubstr;

Address parsed(const std::string& text) {
  Result<Address> address = Address::parse(text);
  EXPECT_TRUE(address.ok()) << address.status().to_string();
  return address.ok() ? *address : Address{};
}

TEST(Address, Ipv4IsHeldInItsMappedForm) {
  const Address address = parsed("10.1.2.3:9000");
  EXPECT_TRUE(address.is_ipv4());
  EXPECT_EQ(address.port, 9000);
  EXPECT_EQ(address.ip[11], 0xff);
  EXPECT_EQ(address.ip[12], 10);
  EXPECT_EQ(address.ip[15], 3);
}

TEST(Address, TextAndValueRoundTrip) {
  for (const char* text : {"127.0.0.1:9000", "0.0.0.0:0", "255.255.255.255:65535", "[::1]:9000",
                           "[fe80::1]:1", "[::]:80", "[2001:db8::a]:443"}) {
    EXPECT_EQ(parsed(text).to_string(), text);
  }
}

TEST(Address, MappedIpv6TextIsTheSameAddressAsIpv4) {
  EXPECT_EQ(parsed("[::ffff:10.0.0.1]:5"), parsed("10.0.0.1:5"));
}

TEST(Address, KnowsLoopbackOfBothFamilies) {
  EXPECT_TRUE(parsed("127.0.0.1:1").is_loopback());
  EXPECT_TRUE(parsed("127.9.9.9:1").is_loopback());
  EXPECT_TRUE(parsed("[::1]:1").is_loopback());
  EXPECT_FALSE(parsed("128.0.0.1:1").is_loopback());
  EXPECT_FALSE(parsed("[::2]:1").is_loopback());
}

TEST(Address, RefusesWhatIsNotNumericAndQuotesIt) {
  for (const char* text :
       {"", ":", "10.0.0.1", "10.0.0.1:", "10.0.0.1:65536", "10.0.0.1:-1", "10.0.0.1: 1",
        "10.0.0.1:80x", "10.0.0:80", "localhost:80", "::1:80", "[::1]", "[]:80", "[10.0.0.1]:80",
        "[::1:80", "10.0.0.1 :80", "[fe80::1%eth0]:80"}) {
    const Result<Address> address = Address::parse(text);
    ASSERT_FALSE(address.ok()) << text;
    EXPECT_EQ(address.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(address.status().message(), HasSubstr(std::string("'") + text + "'"));
  }
}

TEST(Address, IsOrderedByAddressThenPort) {
  EXPECT_LT(parsed("10.0.0.1:9"), parsed("10.0.0.2:1"));
  EXPECT_LT(parsed("10.0.0.1:1"), parsed("10.0.0.1:2"));
}

}  // namespace
}  // namespace be
