#include "be/engine/work_request_chain.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace be {
namespace {

TEST(WorkRequestChain, SegmentsSumToTheDepthThroughItsLife) {
  WorkRequestChain chain(6, 0);
  for (int i = 0; i < 4; ++i) chain.prepare(10);
  EXPECT_EQ(chain.free(), 2u);
  EXPECT_EQ(chain.pending(), 4u);
  EXPECT_EQ(chain.in_flight(), 0u);
  chain.posted(4);
  EXPECT_EQ(chain.pending(), 0u);
  EXPECT_EQ(chain.in_flight(), 4u);
  WorkRequestChain::Range ended;
  ASSERT_TRUE(chain.complete(2, ended));
  EXPECT_EQ(chain.in_flight(), 1u);
  EXPECT_EQ(chain.free(), 5u);
}

TEST(WorkRequestChain, OneCompletionEndsAllBeforeIt) {
  WorkRequestChain chain(8, 0);
  for (int i = 0; i < 5; ++i) chain.prepare(1);
  chain.posted(5);
  WorkRequestChain::Range ended;
  ASSERT_TRUE(chain.complete(3, ended));
  EXPECT_EQ(ended.first, 0u);
  EXPECT_EQ(ended.count, 4u);
  ASSERT_TRUE(chain.complete(4, ended));
  EXPECT_EQ(ended.first, 4u);
  EXPECT_EQ(ended.count, 1u);
}

TEST(WorkRequestChain, RefusesAnIndexThatIsNotInFlight) {
  WorkRequestChain chain(8, 0);
  WorkRequestChain::Range ended;
  EXPECT_FALSE(chain.complete(0, ended));
  chain.prepare(1);
  EXPECT_FALSE(chain.complete(0, ended)) << "prepared, not posted";
  chain.posted(1);
  EXPECT_FALSE(chain.complete(1, ended));
  EXPECT_TRUE(chain.complete(0, ended));
  EXPECT_FALSE(chain.complete(0, ended)) << "completed twice";
}

TEST(WorkRequestChain, SignalsAtLeastOneInAQuarterOfTheDepth) {
  WorkRequestChain chain(16, 0);
  std::vector<bool> signalled;
  for (int i = 0; i < 16; ++i) signalled.push_back(chain.prepare(1).signalled);
  for (int i = 0; i < 16; ++i) EXPECT_EQ(signalled[i], i % 4 == 3) << i;
}

TEST(WorkRequestChain, SignalsAtLeastOneInHalfTheWindow) {
  WorkRequestChain chain(64, 8000);
  EXPECT_FALSE(chain.prepare(2000).signalled);
  EXPECT_TRUE(chain.prepare(2000).signalled);
  EXPECT_FALSE(chain.prepare(3999).signalled);
  EXPECT_TRUE(chain.prepare(1).signalled);
  EXPECT_TRUE(chain.prepare(8000).signalled);
}

TEST(WorkRequestChain, CountsAnewAfterABatchBecauseItsLastIsSignalled) {
  WorkRequestChain chain(16, 0);
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(chain.prepare(1).signalled);
  chain.posted(3);
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(chain.prepare(1).signalled);
  EXPECT_TRUE(chain.prepare(1).signalled);
}

TEST(WorkRequestChain, KeepsSlotsApartAndOrderOverManyRounds) {
  std::mt19937 random(7);
  for (const uint32_t depth : {1u, 2u, 5u, 32u, 48u}) {
    WorkRequestChain chain(depth, 0);
    std::vector<int64_t> holder(chain.slots(), -1);  // which request sits in a slot
    int64_t prepared = 0;
    int64_t completed = 0;
    for (int step = 0; step < 20000; ++step) {
      switch (random() % 3) {
        case 0:
          if (chain.free() == 0) break;
          {
            const auto p = chain.prepare(1);
            ASSERT_LT(p.slot, chain.slots());
            ASSERT_EQ(holder[p.slot], -1);
            holder[p.slot] = prepared++;
          }
          break;
        case 1:
          chain.posted(chain.pending());
          break;
        default:
          if (chain.in_flight() == 0) break;
          const auto last = static_cast<uint32_t>(completed + random() % chain.in_flight());
          WorkRequestChain::Range ended;
          ASSERT_TRUE(chain.complete(last, ended));
          for (uint32_t i = 0; i < ended.count; ++i) {
            ASSERT_EQ(holder[chain.slot_of(ended.first + i)], completed++);
            holder[chain.slot_of(ended.first + i)] = -1;
          }
      }
      ASSERT_EQ(chain.free() + chain.pending() + chain.in_flight(), depth);
    }
  }
}

}  // namespace
}  // namespace be
