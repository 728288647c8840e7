#include "be/engine/slot_table.h"

#include <gtest/gtest.h>

namespace be {
namespace {

TEST(SlotTable, HandsOutEachSlotOnceUntilClosed) {
  SlotTable table(3);
  const uint32_t a = table.open();
  const uint32_t b = table.open();
  EXPECT_NE(a, b);
  EXPECT_TRUE(table.is_open(a));
  table.close(a);
  EXPECT_FALSE(table.is_open(a));
  EXPECT_EQ(table.open_count(), 1u);
}

TEST(SlotTable, KnowsNoSlotBeyondItsSize) {
  SlotTable table(3);
  EXPECT_FALSE(table.is_open(3));
  EXPECT_FALSE(table.is_open(UINT32_MAX));
}

TEST(SlotTable, ThePeersLimitIsSharedByClassToo) {
  SlotTable table(16);
  table.limit(4);
  int requests = 0;
  for (; table.may_open(MessageClass::kRequest); ++requests) table.open();
  EXPECT_EQ(requests, 3);
  EXPECT_TRUE(table.may_open(MessageClass::kReply));
  table.open();
  EXPECT_FALSE(table.may_open(MessageClass::kReply));
}

}  // namespace
}  // namespace be
