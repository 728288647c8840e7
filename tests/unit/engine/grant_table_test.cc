#include "be/engine/grant_table.h"

#include <gtest/gtest.h>

#include <set>

namespace be {
namespace {

constexpr auto kRequest = MessageClass::kRequest;
constexpr auto kReply = MessageClass::kReply;

TEST(GrantTable, AGrantIsClosedExactlyOnce) {
  GrantTable table(4, 1000);
  const GrantId grant = table.open(kRequest, 10);
  EXPECT_TRUE(table.is_open(grant));
  EXPECT_EQ(table.close(grant), GrantTable::slot_of(grant));
  EXPECT_EQ(table.close(grant), std::nullopt);
  EXPECT_EQ(table.given(), 1u);
  EXPECT_EQ(table.closed(), 1u);
}

TEST(GrantTable, TheSlotsNextGrantHasAnotherValue) {
  GrantTable table(2, 1000);
  std::set<GrantId> seen;
  for (uint32_t i = 0; i < GrantTable::kGenerationMask; ++i) {
    const GrantId grant = table.open(kReply, 1);
    EXPECT_NE(grant, 0u);
    EXPECT_TRUE(seen.insert(grant).second) << grant;
    table.close(grant);
  }
  const GrantId reused = table.open(kReply, 1);  // all generations of the slot are through
  EXPECT_NE(reused & GrantTable::kGenerationMask, 0u);
}

TEST(GrantTable, RefusesStaleAndUnknownValues) {
  GrantTable table(4, 1000);
  const GrantId old = table.open(kRequest, 10);
  table.close(old);
  const GrantId now = table.open(kRequest, 10);
  ASSERT_EQ(GrantTable::slot_of(old), GrantTable::slot_of(now));
  EXPECT_EQ(table.close(old), std::nullopt);
  EXPECT_EQ(table.close(0), std::nullopt);
  EXPECT_EQ(table.close(UINT32_MAX), std::nullopt) << "a slot beyond the table";
  EXPECT_TRUE(table.is_open(now));
}

TEST(GrantTable, KeepsAQuarterOfTheGrantsForReplies) {
  GrantTable table(8, 1 << 20);
  int requests = 0;
  for (; table.may_open(kRequest, 1); ++requests) table.open(kRequest, 1);
  EXPECT_EQ(requests, 6);
  int replies = 0;
  for (; table.may_open(kReply, 1); ++replies) table.open(kReply, 1);
  EXPECT_EQ(replies, 2);
}

TEST(GrantTable, KeepsAQuarterOfTheBytesForReplies) {
  GrantTable table(16, 1000);
  table.open(kRequest, 500);
  EXPECT_TRUE(table.may_open(kRequest, 250));
  EXPECT_FALSE(table.may_open(kRequest, 251));
  table.open(kRequest, 250);
  table.open(kReply, 100);
  EXPECT_TRUE(table.may_open(kReply, 150));
  EXPECT_FALSE(table.may_open(kReply, 151));
}

TEST(GrantTable, GrantsAMessageLargerThanTheBudgetAlone) {
  GrantTable table(16, 1000);
  const GrantId small = table.open(kRequest, 1);
  EXPECT_FALSE(table.may_open(kRequest, 5000));
  table.close(small);
  EXPECT_TRUE(table.may_open(kRequest, 5000));
  const GrantId large = table.open(kRequest, 5000);
  EXPECT_FALSE(table.may_open(kRequest, 1));
  EXPECT_TRUE(table.may_open(kReply, 1)) << "a reply waits for no request";
  table.close(large);
  EXPECT_EQ(table.open_bytes(), 0u);
}

}  // namespace
}  // namespace be
