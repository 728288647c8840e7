#include "be/engine/credit_ledger.h"

#include <gtest/gtest.h>

namespace be {
namespace {

TEST(CreditLedger, SenderStopsAtThePeersLastPostedReceive) {
  CreditLedger ledger(8);
  for (int i = 0; i < 8; ++i) {
    EXPECT_TRUE(ledger.may_spend(MessageClass::kReply));
    ledger.spend();
  }
  EXPECT_EQ(ledger.available(), 0u);
  EXPECT_FALSE(ledger.may_spend(MessageClass::kReply));
}

TEST(CreditLedger, RequestsLeaveTheLastQuarterToReplies) {
  CreditLedger ledger(8);
  int requests = 0;
  while (ledger.may_spend(MessageClass::kRequest)) {
    ledger.spend();
    ++requests;
  }
  EXPECT_EQ(requests, 6);
  EXPECT_TRUE(ledger.may_spend(MessageClass::kReply));
}

TEST(CreditLedger, EvenTheSmallestDepthHasOneForEitherClass) {
  CreditLedger ledger(2);
  EXPECT_TRUE(ledger.may_spend(MessageClass::kRequest));
  ledger.spend();
  EXPECT_FALSE(ledger.may_spend(MessageClass::kRequest));
  EXPECT_TRUE(ledger.may_spend(MessageClass::kReply));
}

TEST(CreditLedger, ReturnedCreditsCanBeSpent) {
  CreditLedger ledger(4);
  for (int i = 0; i < 4; ++i) ledger.spend();
  EXPECT_TRUE(ledger.accept(6));
  EXPECT_EQ(ledger.available(), 2u);
}

TEST(CreditLedger, RefusesMoreThanThePeerHasReceives) {
  CreditLedger ledger(4);
  EXPECT_FALSE(ledger.accept(5)) << "nothing was spent";
  ledger.spend();
  EXPECT_FALSE(ledger.accept(6));
  EXPECT_EQ(ledger.available(), 3u) << "a refused total changes nothing";
  EXPECT_TRUE(ledger.accept(5));
}

TEST(CreditLedger, RefusesATotalThatShrinks) {
  CreditLedger ledger(4);
  EXPECT_FALSE(ledger.accept(3));
  EXPECT_FALSE(ledger.accept(UINT32_MAX));
}

TEST(CreditLedger, ForgetsNothingWhenTheTotalsWrapAround) {
  CreditLedger ledger(1u << 20);
  uint32_t total = 1u << 20;
  for (int round = 0; round < 5000; ++round) {  // 5000 * 2^20 > 2^32
    for (uint32_t i = 0; i < 4; ++i) ledger.spend();
    total += 4;
    ASSERT_TRUE(ledger.accept(total));
  }
  EXPECT_EQ(ledger.available(), 1u << 20);
}

TEST(CreditLedger, APeerWithSharedReceivesGrantsAFewAtFirst) {
  CreditLedger ledger(16, 4);
  EXPECT_EQ(ledger.available(), 4u);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(ledger.may_spend(MessageClass::kRequest));
    ledger.spend();
  }
  EXPECT_FALSE(ledger.may_spend(MessageClass::kRequest)) << "a quarter of four is for replies";
  EXPECT_TRUE(ledger.may_spend(MessageClass::kReply));
  EXPECT_TRUE(ledger.accept(16 + 15)) << "one is not spent: at most fifteen more";
  EXPECT_EQ(ledger.available(), 16u);
  EXPECT_FALSE(ledger.accept(16 + 16));
}

TEST(CreditLedger, WhatIsAboveTheFirstCreditsCanBeGivenBack) {
  CreditLedger ledger(16, 4);
  EXPECT_EQ(ledger.surplus(), 0u);
  ASSERT_TRUE(ledger.accept(16 + 1));
  EXPECT_EQ(ledger.surplus(), 0u) << "giving back spends one";
  ASSERT_TRUE(ledger.accept(16 + 10));
  EXPECT_EQ(ledger.surplus(), 9u);
  ledger.spend(1 + ledger.surplus());
  EXPECT_EQ(ledger.available(), 4u);
}

}  // namespace
}  // namespace be
