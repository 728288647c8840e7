#include "be/engine/keepalive.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace be {
namespace {

constexpr Time kStart{};

class KeepaliveTest : public testing::Test {
 protected:
  // One punctual tick.
  Keepalive::Verdict tick(uint64_t heard) { return keepalive_.tick(keepalive_.next_tick(), heard); }

  Keepalive keepalive_{1s, 5s, 1s, kStart};
};

TEST_F(KeepaliveTest, APeerThatStaysSilentIsDeadAfterTheTimeout) {
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(tick(0).dead) << i;
  EXPECT_TRUE(tick(0).dead);
}

TEST_F(KeepaliveTest, EveryGrowthOfItsNumberRestartsTheCount) {
  for (uint64_t heard = 1; heard < 100; ++heard) {
    EXPECT_FALSE(tick(heard).dead);
    for (int i = 0; i < 4; ++i) EXPECT_FALSE(tick(heard).dead);
  }
  EXPECT_TRUE(tick(99).dead);
}

TEST_F(KeepaliveTest, ASmallerNumberIsNoSignOfLife) {
  EXPECT_FALSE(tick(10).dead);
  for (uint64_t heard = 9; heard > 5; --heard) EXPECT_FALSE(tick(heard).dead);
  EXPECT_TRUE(tick(5).dead);
}

TEST_F(KeepaliveTest, OurOwnLateTickRestartsTheCount) {
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(tick(0).dead);
  EXPECT_FALSE(keepalive_.tick(keepalive_.next_tick() + 1001ms, 0).dead) << "we were asleep";
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(tick(0).dead);
  EXPECT_TRUE(tick(0).dead);
}

TEST_F(KeepaliveTest, ASlightlyLateTickCounts) {
  for (int i = 0; i < 4; ++i) keepalive_.tick(keepalive_.next_tick() + 900ms, 0);
  EXPECT_TRUE(keepalive_.tick(keepalive_.next_tick() + 900ms, 0).dead);
}

TEST_F(KeepaliveTest, TicksOfEnginesThatAreDueAboutTheSameTimeFallTogether) {
  Keepalive other(1s, 5s, 1s, kStart + 100ms);
  const Time wake = std::min(keepalive_.latest_tick(), other.latest_tick());
  EXPECT_EQ(wake, kStart + 1125ms);
  EXPECT_EQ(keepalive_.tick(wake, 0).write, 1u);
  EXPECT_EQ(other.tick(wake, 0).write, 1u);
  EXPECT_EQ(keepalive_.next_tick(), other.next_tick());
}

TEST_F(KeepaliveTest, NothingHappensBeforeTheTick) {
  const auto verdict = keepalive_.tick(kStart + 999ms, 0);
  EXPECT_EQ(verdict.write, 0u);
  EXPECT_EQ(keepalive_.next_tick(), kStart + 1s);
}

TEST_F(KeepaliveTest, WritesAGrowingNumberWithAtMostOneOnItsWay) {
  EXPECT_EQ(tick(0).write, 1u);
  EXPECT_EQ(tick(1).write, 0u) << "the first has not completed";
  keepalive_.written();
  EXPECT_EQ(tick(2).write, 2u);
}

TEST(Keepalive, GivesASlowPeerThreeOfItsIntervals) {
  const Keepalive keepalive(100ms, 500ms, 2s, kStart);
  EXPECT_EQ(keepalive.timeout(), 6s);
}

}  // namespace
}  // namespace be
