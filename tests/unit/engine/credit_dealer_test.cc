#include "be/engine/credit_dealer.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace be {
namespace {

constexpr CreditDealer::Claim kClaim{.reserve = 10, .floor = 4, .most = 32};
constexpr CreditDealer::Id kNobody = CreditDealer::kNobody;

TEST(CreditDealer, AnEngineBeginsWithItsFloor) {
  CreditDealer dealer(100);
  const auto id = dealer.admit(kClaim);
  ASSERT_NE(id, kNobody);
  EXPECT_EQ(dealer.dealt(id), 4u);
  EXPECT_EQ(dealer.reserved(), 10u);
  EXPECT_EQ(dealer.free(), 86u);
}

TEST(CreditDealer, AdmitsWhatFitsToTheLastEntry) {
  CreditDealer dealer(3 * 14);
  for (int i = 0; i < 3; ++i) EXPECT_NE(dealer.admit(kClaim), kNobody);
  EXPECT_EQ(dealer.free(), 0u);
  EXPECT_EQ(dealer.admit(kClaim), kNobody);
  dealer.forget(1);
  EXPECT_EQ(dealer.admit(kClaim), 1u) << "its place is used again";
  EXPECT_EQ(dealer.admit(kClaim), kNobody);
}

TEST(CreditDealer, OneBusyEngineGetsHalfOfWhatIsFreeAndNeverMoreThanItsDepth) {
  CreditDealer dealer(10 + 4 + 20);
  const auto id = dealer.admit(kClaim);
  EXPECT_EQ(dealer.deal(id, 100), 10u);
  EXPECT_EQ(dealer.free(), 10u);
  EXPECT_EQ(dealer.deal(id, 100), 0u) << "as much is free as it has beyond its floor";
  EXPECT_EQ(dealer.broken_invariant(), nullptr);

  CreditDealer large(1000);
  const auto deep = large.admit(kClaim);
  EXPECT_EQ(large.deal(deep, 100), 28u);
  EXPECT_EQ(large.dealt(deep), 32u);
}

TEST(CreditDealer, DealsNoMoreThanIsWished) {
  CreditDealer dealer(100);
  const auto id = dealer.admit(kClaim);
  EXPECT_EQ(dealer.deal(id, 3), 3u);
}

TEST(CreditDealer, ThreeBusyEnginesGetAQuarterEachOfWhatIsBeyondTheFloors) {
  CreditDealer dealer(3 * 14 + 40);
  std::vector<CreditDealer::Id> ids;
  for (int i = 0; i < 3; ++i) ids.push_back(dealer.admit(kClaim));
  // Each spends and is dealt again, for a long time.
  for (int round = 0; round < 200; ++round) {
    for (const auto id : ids) {
      dealer.consumed(id);
      dealer.posted_again(id);
      dealer.deal(id, 32);
      ASSERT_EQ(dealer.broken_invariant(), nullptr);
    }
  }
  for (const auto id : ids) EXPECT_NEAR(dealer.dealt(id), 4 + 10, 1);
  EXPECT_NEAR(dealer.free(), 10, 3) << "for who becomes busy next";
}

TEST(CreditDealer, TheFloorIsAlwaysGivenHoweverMuchTheOthersHave) {
  CreditDealer dealer(2 * 14 + 7);
  const auto busy = dealer.admit(kClaim);
  const auto other = dealer.admit(kClaim);
  while (dealer.deal(busy, 1) > 0) {
  }
  for (int i = 0; i < 4; ++i) {
    dealer.consumed(other);
    dealer.posted_again(other);
  }
  EXPECT_EQ(dealer.dealt(other), 0u);
  EXPECT_GE(dealer.deal(other, 32), 4u);
  EXPECT_EQ(dealer.broken_invariant(), nullptr);
}

TEST(CreditDealer, CreditsFollowDemandFromOneEngineToAnother) {
  CreditDealer dealer(2 * 14 + 20);
  const auto a = dealer.admit(kClaim);
  const auto b = dealer.admit(kClaim);
  EXPECT_EQ(dealer.deal(a, 32), 10u);
  EXPECT_EQ(dealer.deal(b, 32), 5u);
  dealer.given_back(a, 10);  // its peer is idle
  EXPECT_EQ(dealer.dealt(a), 4u);
  EXPECT_EQ(dealer.deal(b, 32), 5u);
  EXPECT_EQ(dealer.dealt(b), 4u + 10);
}

TEST(CreditDealer, AnEngineThatOwesIsThrottledAndTheOthersAreNot) {
  CreditDealer dealer(2 * 14 + 20);
  const auto slow = dealer.admit(kClaim);
  const auto quick = dealer.admit(kClaim);
  // The application keeps everything, and there is no memory for other receives.
  uint32_t kept = 0;
  for (int i = 0; i < 100; ++i) {
    if (dealer.dealt(slow) == 0 && dealer.deal(slow, 32) == 0) break;
    dealer.consumed(slow);
    ++kept;
  }
  EXPECT_EQ(kept, 4u + 10) << "its floor and half of the rest";
  EXPECT_EQ(dealer.dealt(slow), 0u);
  EXPECT_EQ(dealer.missing(), kept);
  for (int i = 0; i < 100; ++i) {
    dealer.consumed(quick);
    dealer.posted_again(quick);
    dealer.deal(quick, 32);
    ASSERT_GE(dealer.dealt(quick), 4u);
    ASSERT_EQ(dealer.broken_invariant(), nullptr);
  }
}

TEST(CreditDealer, MemoryGoesToWhoOwesLeastAndLastToWhatIsOwedByNobody) {
  CreditDealer dealer(3 * 14);
  const auto a = dealer.admit(kClaim);
  const auto b = dealer.admit(kClaim);
  const auto gone = dealer.admit(kClaim);
  for (int i = 0; i < 3; ++i) dealer.consumed(a);
  dealer.consumed(b);
  dealer.consumed(gone);
  dealer.forget(gone);
  EXPECT_EQ(dealer.missing(), 5u);
  EXPECT_EQ(dealer.least_owing(), b);
  dealer.replaced(b);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(dealer.least_owing(), a);
    dealer.replaced(a);
  }
  EXPECT_EQ(dealer.least_owing(), kNobody);
  EXPECT_EQ(dealer.free(), 14u - 1) << "its entry is not there yet";
  dealer.replaced(kNobody);
  EXPECT_EQ(dealer.missing(), 0u);
  EXPECT_EQ(dealer.free(), 14u);
}

TEST(CreditDealer, WhateverComesPostedEntriesSufficeForAllClaims) {
  std::mt19937 random(5);
  CreditDealer dealer(200);
  std::vector<CreditDealer::Id> ids;
  for (int step = 0; step < 50000; ++step) {
    const auto some = [&] { return ids[random() % ids.size()]; };
    switch (ids.empty() ? 0 : random() % 8) {
      case 0: {
        CreditDealer::Claim claim{.reserve = 2, .floor = 2, .most = 16};
        claim.reserve += random() % 20;
        claim.floor += random() % 3;
        const auto id = dealer.admit(claim);
        if (id != kNobody) ids.push_back(id);
        break;
      }
      case 1:
        if (random() % 4 == 0) {
          const auto id = some();
          dealer.forget(id);
          std::erase(ids, id);
        }
        break;
      case 2:
        if (const auto id = some(); dealer.dealt(id) > 0) {
          dealer.given_back(id, static_cast<uint32_t>(1 + random() % dealer.dealt(id)));
        }
        break;
      case 3:
        if (dealer.missing() > 0) dealer.replaced(dealer.least_owing());
        break;
      case 4:
      case 5:
        dealer.deal(some(), static_cast<uint32_t>(random() % 20));
        break;
      default:
        if (const auto id = some(); dealer.dealt(id) > 0) dealer.consumed(id);
    }
    ASSERT_EQ(dealer.broken_invariant(), nullptr) << step;
  }
  for (const auto id : ids) dealer.forget(id);
  while (dealer.missing() > 0) dealer.replaced(dealer.least_owing());
  EXPECT_EQ(dealer.free(), 200u);
  EXPECT_EQ(dealer.engines(), 0u);
}

}  // namespace
}  // namespace be
