#include "be/engine/receive_ring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>

#include "be/engine/credit_ledger.h"

namespace be {
namespace {

constexpr uint32_t kDepth = 8;
constexpr uint32_t kReserve = 6;

class ReceiveRingTest : public testing::Test {
 protected:
  ReceiveRingTest() {
    while (ring_.posted() < ring_.depth()) ring_.post_first();
  }
  void consume() { ASSERT_TRUE(ring_.consume(consumed_++)); }
  void take_data(uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) {
      consume();
      ASSERT_TRUE(ring_.consumed_by_data());
    }
  }
  void replace(uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) ring_.post_replaced();
  }

  ReceiveRing ring_{kDepth, kReserve};
  uint32_t consumed_ = 0;
};

TEST_F(ReceiveRingTest, HoldsReceivesForDataAndForTheReserve) {
  EXPECT_EQ(ring_.depth(), kDepth + kReserve);
  EXPECT_EQ(ring_.posted(), kDepth + kReserve);
}

TEST_F(ReceiveRingTest, ConsumesInTheOrderPosted) {
  EXPECT_FALSE(ring_.consume(1));
  EXPECT_TRUE(ring_.consume(0));
  EXPECT_FALSE(ring_.consume(0));
  EXPECT_TRUE(ring_.consume(1));
}

TEST_F(ReceiveRingTest, ControlReceivesArePostedAgainWithoutCredit) {
  consume();
  ring_.consumed_by_control();
  EXPECT_EQ(ring_.to_repost(), 1u);
  EXPECT_EQ(ring_.next_index(), kDepth + kReserve);
  ring_.post_again();
  EXPECT_EQ(ring_.posted(), ring_.depth());
  EXPECT_FALSE(ring_.return_due());
}

TEST_F(ReceiveRingTest, RefusesDataBeyondThePeersCredits) {
  take_data(kDepth);
  consume();
  EXPECT_FALSE(ring_.consumed_by_data());
}

TEST_F(ReceiveRingTest, ReturnsHalfTheDepthAtATime) {
  take_data(3);
  EXPECT_FALSE(ring_.replacement_due());
  take_data(1);
  EXPECT_TRUE(ring_.replacement_due());
  EXPECT_FALSE(ring_.return_due()) << "nothing was replaced yet";
  replace(4);
  ASSERT_TRUE(ring_.return_due());
  EXPECT_EQ(ring_.take_return(), kDepth + 4);
  EXPECT_FALSE(ring_.return_due());
}

TEST_F(ReceiveRingTest, WithholdsTheCreditOfWhatIsNotReplaced) {
  take_data(4);
  replace(2);
  EXPECT_FALSE(ring_.return_due()) << "less than k, and the peer still has four";
  EXPECT_EQ(ring_.deficit(), 2u);
}

TEST_F(ReceiveRingTest, ReturnsLessWhenThePeerIsDownToTheShareOfReplies) {
  take_data(6);
  EXPECT_TRUE(ring_.replacement_due());
  replace(1);
  ASSERT_TRUE(ring_.return_due());
  EXPECT_EQ(ring_.take_return(), kDepth + 1);
}

TEST_F(ReceiveRingTest, ASmallReturnWaitsUntilTheOneBeforeHasBeenTaken) {
  take_data(8);
  replace(1);
  ring_.take_return();
  replace(1);
  EXPECT_FALSE(ring_.return_due()) << "the peer cannot be known to have taken the first";
  take_data(1);  // the ninth: spends what only the first return gave
  EXPECT_TRUE(ring_.return_due());
}

TEST_F(ReceiveRingTest, TheSecondUntakenReturnMakesThePeerAbleToSendRequests) {
  take_data(8);
  replace(1);
  ring_.take_return();
  replace(1);
  EXPECT_FALSE(ring_.return_due());
  replace(1);
  ASSERT_TRUE(ring_.return_due()) << "three credits in all: more than the two for replies";
  ring_.take_return();
  replace(4);
  EXPECT_FALSE(ring_.return_due()) << "a third would find no receive";
  take_data(1);
  EXPECT_TRUE(ring_.return_due());
}

// A sender that obeys its ledger and a receiver that is always short of memory: no more than two
// returns are ever untaken, and everything gets through as long as memory comes back.
TEST(ReceiveRing, NeverHasMoreThanTwoReturnsOnTheWayAndNeverDeadlocks) {
  std::mt19937 random(11);
  for (const uint32_t depth : {2u, 3u, 4u, 5u, 8u, 32u}) {
    for (const uint32_t replies_in_8 : {0u, 1u, 4u}) {
      ReceiveRing ring(depth, 0);
      CreditLedger ledger(depth);
      while (ring.posted() < ring.depth()) ring.post_first();
      std::deque<uint32_t> returns;  // on their way to the sender
      uint32_t on_the_way = 0;       // data SENDs
      uint32_t consumed = 0;
      uint32_t held = 0;  // buffers that the application has not freed
      uint32_t sent = 0;
      int idle = 0;
      auto next = MessageClass::kRequest;  // what the sender wants to send, and waits for
      while (sent < 3000) {
        ++idle;
        if (random() % 2 && ledger.may_spend(next)) {
          ledger.spend();
          ++on_the_way;
          ++sent;
          idle = 0;
          next = random() % 8 < replies_in_8 ? MessageClass::kReply : MessageClass::kRequest;
        }
        if (random() % 2 && on_the_way > 0) {
          --on_the_way;
          ASSERT_TRUE(ring.consume(consumed++ & ReceiveRing::kIndexMask));
          ASSERT_TRUE(ring.consumed_by_data());
          ++held;
        }
        if (random() % 4 == 0 && held > 0) --held;
        while (ring.replacement_due() && ring.posted() + held < depth) ring.post_replaced();
        if (ring.return_due()) {
          returns.push_back(ring.take_return());
          ASSERT_LE(returns.size(), 2u);
        }
        if (random() % 3 == 0 && !returns.empty()) {
          ASSERT_TRUE(ledger.accept(returns.front()));
          returns.pop_front();
        }
        ASSERT_EQ(ring.posted() + ring.deficit(), ring.depth());
        ASSERT_LT(idle, 100000) << "deadlock at depth " << depth;
      }
    }
  }
}

TEST(ReceiveRing, OnAnSrqThePeerBeginsWithAFewCreditsAndGetsMoreWhenHalfAreSpent) {
  ReceiveRing ring = ReceiveRing::shared(16, 6, 4);
  while (!ring.complete()) ring.post_first();
  EXPECT_EQ(ring.posted(), 6u + 4);
  EXPECT_EQ(ring.data_posted(), 4u);
  EXPECT_FALSE(ring.replacement_due()) << "though twelve of the sixteen are not posted";
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(ring.consume_shared());
    ASSERT_TRUE(ring.consumed_by_data());
  }
  ASSERT_TRUE(ring.replacement_due());
  for (int i = 0; i < 10; ++i) ring.post_replaced();
  ASSERT_TRUE(ring.return_due());
  EXPECT_EQ(ring.take_return(), 16u + 10);
  EXPECT_EQ(ring.data_posted(), 12u);
  EXPECT_FALSE(ring.replacement_due()) << "it has twelve now, and has spent none of them";
}

TEST(ReceiveRing, OnAnSrqAPeerCanGiveBackWhatItHasAndNoMore) {
  ReceiveRing ring = ReceiveRing::shared(16, 6, 4);
  while (!ring.complete()) ring.post_first();
  EXPECT_FALSE(ring.give_back(5));
  ASSERT_TRUE(ring.give_back(2));
  EXPECT_EQ(ring.data_posted(), 2u);
  EXPECT_EQ(ring.posted(), 6u + 2);
  EXPECT_FALSE(ring.give_back(3));
}

// As above, where the dealer gives little or much, and the sender gives back what it does not use.
TEST(ReceiveRing, OnAnSrqNeverHasMoreThanTwoReturnsOnTheWayEither) {
  std::mt19937 random(12);
  for (const uint32_t depth : {2u, 3u, 4u, 8u, 32u}) {
    for (const uint32_t replies_in_8 : {0u, 1u, 4u}) {
      const uint32_t initial = std::min(depth, 4u);
      ReceiveRing ring = ReceiveRing::shared(depth, 0, initial);
      CreditLedger ledger(depth, initial);
      while (!ring.complete()) ring.post_first();
      std::deque<uint32_t> returns;     // on their way to the sender
      std::deque<uint32_t> on_the_way;  // to the receiver: credits given back beside the one spent
      uint32_t sent = 0;
      uint32_t given_back = 0;
      int idle = 0;
      auto next = MessageClass::kRequest;
      while (sent < 3000) {
        ++idle;
        if (random() % 2 && ledger.may_spend(next)) {
          ledger.spend();
          on_the_way.push_back(0);
          ++sent;
          idle = 0;
          next = random() % 8 < replies_in_8 ? MessageClass::kReply : MessageClass::kRequest;
        }
        if (random() % 32 == 0 && ledger.surplus() > 0) {
          given_back += ledger.surplus();
          on_the_way.push_back(ledger.surplus());
          ledger.spend(1 + ledger.surplus());
          ASSERT_EQ(ledger.available(), initial);
        }
        if (random() % 2 && !on_the_way.empty()) {
          ASSERT_TRUE(ring.consume_shared());
          ASSERT_TRUE(ring.consumed_by_data());
          ASSERT_TRUE(ring.give_back(on_the_way.front()));
          on_the_way.pop_front();
        }
        const uint32_t allowed = random() % 2 ? initial : depth;
        if (ring.replacement_due()) {
          while (ring.data_posted() < allowed) ring.post_replaced();
        }
        if (ring.return_due()) {
          returns.push_back(ring.take_return());
          ASSERT_LE(returns.size(), 2u);
        }
        if (random() % 3 == 0 && !returns.empty()) {
          ASSERT_TRUE(ledger.accept(returns.front()));
          returns.pop_front();
        }
        ASSERT_EQ(ring.posted() + ring.deficit(), ring.depth());
        ASSERT_LT(idle, 100000) << "deadlock at depth " << depth;
      }
      EXPECT_EQ(given_back > 100, depth == 32);
    }
  }
}

}  // namespace
}  // namespace be
