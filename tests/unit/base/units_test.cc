#include "be/base/units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace be {
namespace {

using testing::HasSubstr;

TEST(Units, SizesAreReadWithBinaryUnits) {
  EXPECT_EQ(parse_bytes("0").value(), 0u);
  EXPECT_EQ(parse_bytes("4096").value(), 4096u);
  EXPECT_EQ(parse_bytes("4096B").value(), 4096u);
  EXPECT_EQ(parse_bytes("64KiB").value(), 65536u);
  EXPECT_EQ(parse_bytes("4MiB").value(), 4u << 20);
  EXPECT_EQ(parse_bytes("3GiB").value(), 3ull << 30);
  EXPECT_EQ(parse_bytes("18446744073709551615").value(), UINT64_MAX);
}

TEST(Units, WhatIsNoSizeIsRefusedAndQuoted) {
  for (const char* text : {"", "KiB", "-1", "1.5MiB", "64KB", "64 KiB", "64kib", "0x10",
                           "18446744073709551616", "99999999999TiB"}) {
    const Result<uint64_t> size = parse_bytes(text);
    ASSERT_FALSE(size.ok()) << text;
    EXPECT_THAT(size.status().message(), HasSubstr(std::string("'") + text + "'"));
  }
}

TEST(Units, DurationsAreReadWithTheirUnit) {
  EXPECT_EQ(parse_duration("0").value(), 0ns);
  EXPECT_EQ(parse_duration("7ns").value(), 7ns);
  EXPECT_EQ(parse_duration("50us").value(), 50us);
  EXPECT_EQ(parse_duration("10ms").value(), 10ms);
  EXPECT_EQ(parse_duration("1s").value(), 1s);
  EXPECT_EQ(parse_duration("5min").value(), 5min);
  EXPECT_EQ(parse_duration("2h").value(), 2h);
}

TEST(Units, WhatIsNoDurationIsRefusedAndQuoted) {
  for (const char* text :
       {"", "10", "ms", "-1s", "1.5s", "1m", "1 s", "9999999999h", "9223372036854775808ns"}) {
    const Result<Nanoseconds> duration = parse_duration(text);
    ASSERT_FALSE(duration.ok()) << text;
    EXPECT_THAT(duration.status().message(), HasSubstr(std::string("'") + text + "'"));
  }
}

TEST(Units, RatesAreReadWithDecimalUnits) {
  EXPECT_EQ(parse_rate("0").value(), 0u);
  EXPECT_EQ(parse_rate("8bps").value(), 8u);
  EXPECT_EQ(parse_rate("64Kbps").value(), 64'000u);
  EXPECT_EQ(parse_rate("100Mbps").value(), 100'000'000u);
  EXPECT_EQ(parse_rate("25Gbps").value(), 25'000'000'000u);
  EXPECT_EQ(format_rate(25'000'000'000), "25Gbps");
  EXPECT_EQ(format_rate(2'500'000), "2500Kbps");
  EXPECT_EQ(parse_rate(format_rate(0)).value(), 0u);
}

TEST(Units, WhatIsNoRateIsRefusedAndQuoted) {
  for (const char* text : {"", "25", "Gbps", "2.5Gbps", "25 Gbps", "25gbps", "99999999999Gbps"}) {
    const Result<uint64_t> rate = parse_rate(text);
    ASSERT_FALSE(rate.ok()) << text;
    EXPECT_THAT(rate.status().message(), HasSubstr(std::string("'") + text + "'"));
  }
}

TEST(Units, ShortestTextIsReadBackExactly) {
  EXPECT_EQ(format_bytes(0), "0B");
  EXPECT_EQ(format_bytes(1000), "1000B");
  EXPECT_EQ(format_bytes(65536), "64KiB");
  EXPECT_EQ(format_bytes(5ull << 30), "5GiB");
  EXPECT_EQ(format_duration(0ns), "0ns");
  EXPECT_EQ(format_duration(1500us), "1500us");
  EXPECT_EQ(format_duration(60s), "1min");
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, uint64_t{1536}, UINT64_MAX}) {
    EXPECT_EQ(parse_bytes(format_bytes(bytes)).value(), bytes);
  }
  for (const Nanoseconds duration : {Nanoseconds(1), Nanoseconds(90s), Nanoseconds::max()}) {
    EXPECT_EQ(parse_duration(format_duration(duration)).value(), duration);
  }
}

}  // namespace
}  // namespace be
