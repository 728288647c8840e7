#include "be/rpc/deadline_wheel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

namespace be::rpc {
namespace {

constexpr Time kStart(5s);

std::vector<uint32_t> expired_at(DeadlineWheel& wheel, Time now) {
  std::vector<uint32_t> expired;
  wheel.expire(now, expired);
  std::sort(expired.begin(), expired.end());
  return expired;
}

TEST(DeadlineWheel, NothingExpiresBeforeItsDeadline) {
  DeadlineWheel wheel;
  wheel.insert(3, kStart + 40ms, kStart);
  EXPECT_TRUE(expired_at(wheel, kStart + 39ms).empty());
  EXPECT_TRUE(expired_at(wheel, kStart + 40ms - 1ns).empty());
  EXPECT_EQ(wheel.size(), 1u);
}

TEST(DeadlineWheel, WhatIsDueExpiresAtMostOneTickLate) {
  DeadlineWheel wheel;
  wheel.insert(3, kStart + 40ms, kStart);
  EXPECT_EQ(expired_at(wheel, kStart + 40ms + DeadlineWheel::kTick), std::vector<uint32_t>{3});
  EXPECT_EQ(wheel.size(), 0u);
}

TEST(DeadlineWheel, NextLeadsToTheExpiry) {
  DeadlineWheel wheel;
  const Time look = wheel.insert(0, kStart + 700ms, kStart);
  EXPECT_EQ(wheel.next(), look);
  EXPECT_GE(look, kStart + 700ms);
  EXPECT_LE(look, kStart + 700ms + DeadlineWheel::kTick);
  EXPECT_EQ(expired_at(wheel, look), std::vector<uint32_t>{0});
  EXPECT_EQ(wheel.next(), kNever);
}

TEST(DeadlineWheel, ADeadlineBeyondOneTurnIsPassedOverAndMetLater) {
  DeadlineWheel wheel;
  wheel.insert(1, kStart + 10s, kStart);
  Time now = kStart;
  int looks = 0;
  while (expired_at(wheel, now).empty()) {
    ASSERT_LT(++looks, 20) << "next() leads nowhere";
    ASSERT_GT(wheel.next(), now);
    now = wheel.next();
  }
  EXPECT_GE(now, kStart + 10s);
  EXPECT_LE(now, kStart + 10s + DeadlineWheel::kTick);
}

TEST(DeadlineWheel, NeverIsNever) {
  DeadlineWheel wheel;
  wheel.insert(1, kNever, kStart);
  EXPECT_TRUE(expired_at(wheel, kStart + 24h).empty());
  wheel.remove(1);
  EXPECT_EQ(wheel.size(), 0u);
}

TEST(DeadlineWheel, ADeadlineInThePastExpiresWithTheNextTick) {
  DeadlineWheel wheel;
  wheel.insert(1, kStart - 1s, kStart);
  EXPECT_EQ(expired_at(wheel, kStart + DeadlineWheel::kTick), std::vector<uint32_t>{1});
}

TEST(DeadlineWheel, WhatIsRemovedNeverExpires) {
  DeadlineWheel wheel;
  for (uint32_t i = 0; i < 3; ++i) wheel.insert(i, kStart + 10ms, kStart);
  wheel.remove(1);
  wheel.remove(1);
  wheel.remove(77);
  EXPECT_EQ(expired_at(wheel, kStart + 1s), (std::vector<uint32_t>{0, 2}));
}

TEST(DeadlineWheel, ALongPauseExpiresEverythingDueAtOnce) {
  DeadlineWheel wheel;
  for (uint32_t i = 0; i < 100; ++i) wheel.insert(i, kStart + i * 50ms, kStart);
  EXPECT_EQ(expired_at(wheel, kStart + 1h).size(), 100u);
}

TEST(DeadlineWheel, AgreesWithASortedMapOverRandomUse) {
  std::mt19937 random(42);
  DeadlineWheel wheel;
  std::map<uint32_t, Time> model;
  Time now = kStart;
  for (int step = 0; step < 20000; ++step) {
    const uint32_t index = random() % 64;
    if (model.contains(index)) {
      if (random() % 2 == 0) {
        wheel.remove(index);
        model.erase(index);
      }
    } else {
      const Time deadline = now + Nanoseconds(random() % 3'000'000'000u);
      wheel.insert(index, deadline, now);
      model[index] = deadline;
    }
    now += Nanoseconds(random() % 20'000'000u);
    for (const uint32_t gone : expired_at(wheel, now)) {
      ASSERT_TRUE(model.contains(gone));
      ASSERT_LE(model[gone], now);
      model.erase(gone);
    }
    for (const auto& [still, deadline] : model) {
      ASSERT_GT(deadline + DeadlineWheel::kTick, now) << "index " << still << " was forgotten";
    }
    ASSERT_EQ(wheel.size(), model.size());
    ASSERT_EQ(wheel.next() == kNever, model.empty());
  }
}

}  // namespace
}  // namespace be::rpc
