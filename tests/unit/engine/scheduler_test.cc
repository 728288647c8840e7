#include "be/engine/scheduler.h"

#include <gtest/gtest.h>

#include <vector>

namespace be {
namespace {

using Wait = Scheduler::Wait;

std::vector<uint32_t> take_all(Scheduler& scheduler) {
  std::vector<uint32_t> order;
  while (scheduler.runnable()) order.push_back(scheduler.take());
  return order;
}

TEST(Scheduler, GivesTurnsInTheOrderOfArrival) {
  Scheduler scheduler;
  for (const uint32_t socket : {7u, 2u, 5u}) scheduler.add(socket);
  EXPECT_EQ(take_all(scheduler), (std::vector<uint32_t>{7, 2, 5}));
}

TEST(Scheduler, BetweenTwoTurnsOfASocketEachOtherHasExactlyOne) {
  Scheduler scheduler;
  constexpr uint32_t kSockets = 9;
  for (uint32_t socket = 0; socket < kSockets; ++socket) scheduler.add(socket);
  for (uint32_t turn = 0; turn < 10 * kSockets; ++turn) {
    const uint32_t socket = scheduler.take();
    EXPECT_EQ(socket, turn % kSockets);
    scheduler.add(socket);
  }
}

TEST(Scheduler, AddingTwiceGivesOneTurn) {
  Scheduler scheduler;
  scheduler.add(1);
  scheduler.add(2);
  scheduler.add(1);
  EXPECT_EQ(take_all(scheduler), (std::vector<uint32_t>{1, 2}));
}

TEST(Scheduler, ASocketAtTheFrontKeepsItsTurn) {
  Scheduler scheduler;
  scheduler.add_front(3);
  scheduler.add(4);
  const uint32_t first = scheduler.take();
  scheduler.add_front(first);
  EXPECT_EQ(take_all(scheduler), (std::vector<uint32_t>{3, 4}));
}

TEST(Scheduler, ParkedSocketsHaveNoTurnUntilWoken) {
  Scheduler scheduler;
  scheduler.park(1, Wait::kRequestCredit);
  scheduler.park(2, Wait::kReplyCredit);
  EXPECT_FALSE(scheduler.runnable());
  scheduler.wake(Wait::kReplyCredit, 5);
  EXPECT_EQ(take_all(scheduler), (std::vector<uint32_t>{2}));
  EXPECT_TRUE(scheduler.parked(Wait::kRequestCredit));
}

TEST(Scheduler, WakesTheLongestParkedFirstAndNoMoreThanAsked) {
  Scheduler scheduler;
  for (uint32_t socket = 0; socket < 5; ++socket) scheduler.park(socket, Wait::kFragment);
  scheduler.wake(Wait::kFragment, 2);
  EXPECT_EQ(take_all(scheduler), (std::vector<uint32_t>{0, 1}));
  scheduler.park(0, Wait::kFragment);
  scheduler.wake(Wait::kFragment, 9);
  EXPECT_EQ(take_all(scheduler), (std::vector<uint32_t>{2, 3, 4, 0}));
}

TEST(Scheduler, AddTakesASocketOutOfItsParking) {
  Scheduler scheduler;
  for (uint32_t socket = 0; socket < 3; ++socket) scheduler.park(socket, Wait::kFragment);
  scheduler.add(1);
  EXPECT_EQ(take_all(scheduler), (std::vector<uint32_t>{1}));
  scheduler.wake(Wait::kFragment, 9);
  EXPECT_EQ(take_all(scheduler), (std::vector<uint32_t>{0, 2}));
}

TEST(Scheduler, KnowsWhetherAnybodyIsParked) {
  Scheduler scheduler;
  scheduler.add(1);
  EXPECT_FALSE(scheduler.any_parked());
  scheduler.park(2, Wait::kFragment);
  scheduler.park(3, Wait::kReplyCredit);
  EXPECT_TRUE(scheduler.any_parked());
  scheduler.remove(2);
  EXPECT_TRUE(scheduler.any_parked());
  scheduler.wake(Wait::kReplyCredit, 1);
  EXPECT_FALSE(scheduler.any_parked());
}

TEST(Scheduler, RemovedSocketsHaveNoTurnWhereverTheyWere) {
  Scheduler scheduler;
  for (uint32_t socket = 0; socket < 4; ++socket) scheduler.add(socket);
  scheduler.park(4, Wait::kReplyWriteRequest);
  for (const uint32_t socket : {0u, 3u, 4u, 9u}) scheduler.remove(socket);
  scheduler.wake(Wait::kReplyWriteRequest, 9);
  EXPECT_EQ(take_all(scheduler), (std::vector<uint32_t>{1, 2}));
}

}  // namespace
}  // namespace be
